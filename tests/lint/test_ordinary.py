"""Files as people write them give no alarm where there is nothing wrong."""

import pytest

from tests.lint.test_hostile import MACHINE, lint

COMPOSE = """\
x-engine: &engine
  image: lmsysorg/sglang:latest
  restart: unless-stopped
  network_mode: host
  ipc: host
  ulimits: {memlock: -1, stack: 67108864}
services:
  engine:
    <<: *engine
    entrypoint: python3 -m sglang.launch_server
    command:
      --model-path ${MODEL:-/models/m}
      --host 0.0.0.0
      --tp 8
    environment:
      HF_TOKEN: ${HF_TOKEN}
    volumes: ["${HOME}/.cache:/root/.cache"]
    healthcheck: {test: ["CMD-SHELL", "curl -f http://localhost:30000/health || exit 1"]}
    deploy:
      resources:
        reservations:
          devices: [{driver: nvidia, device_ids: ["0", "1", "2", "3"], capabilities: [gpu]}]
  metrics:
    image: prom/prometheus
    cap_drop: [ALL]
    command: ["--config.file=/etc/prometheus.yml"]
  node-exporter:
    image: prom/node-exporter
    pid: host
    privileged: true
    volumes: ["/:/host:ro"]
"""

RENDERED = """\
---
# Source: engine/templates/service-account.yaml
apiVersion: v1
kind: ServiceAccount
metadata: {name: engine}
---
# Source: engine/templates/deployment.yaml
apiVersion: apps/v1
kind: Deployment
metadata: {name: engine, labels: {helm.sh/chart: engine-1.0.0}}
spec:
  template:
    spec:
      initContainers:
      - name: fetch
        image: alpine/curl
        command: [sh, -ec, 'test -d /models/m || curl -fsSL "$(URL)" | tar -xzf - -C /models']
      containers:
      - name: engine
        image: vllm/vllm-openai:v0.11.0
        command: [sh, -c]
        args:
        - |
          # it's a script
          exec vllm serve /models/m \\
            --tensor-parallel-size 2 \\
            --served-model-name "$MODEL_NAME"
        envFrom: [{configMapRef: {name: engine}}]
        resources: {limits: {nvidia.com/gpu: "2"}, requests: {cpu: "8", memory: 64Gi}}
        volumeMounts: [{name: shm, mountPath: /dev/shm}]
      volumes: [{name: shm, emptyDir: {medium: Memory}}]
---
apiVersion: monitoring.coreos.com/v1
kind: ServiceMonitor
metadata: {name: engine}
spec: {endpoints: [{port: http}]}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: engines.example.org}
spec:
  versions:
  - schema: {openAPIV3Schema: {properties: {containers: {items: {properties: {name: {}}}}}}}
"""

UNIT = """\
[Unit]
Description=Engine
After=network-online.target nvidia-persistenced.service

[Service]
User=engine
EnvironmentFile=-/etc/engine/env
Environment=HF_HOME=/models
ExecStartPre=/bin/sh -c 'test -e /dev/nvidia0'
ExecStart=/opt/engine/bin/vllm serve /models/m --port 8000
Restart=on-failure
LimitMEMLOCK=infinity
NoNewPrivileges=yes

[Install]
WantedBy=multi-user.target
"""

SCRIPT = """\
#!/usr/bin/env bash
set -euo pipefail
NAME=engine; TAG=${1:-latest}
if ! command -v docker > /dev/null 2>&1; then
    echo "docker isn't installed" >&2; exit 1
fi
GPUS=$(nvidia-smi -L | wc -l)
docker rm -f "$NAME" || true
docker run -d --name "$NAME" --gpus all --ipc=host --ulimit memlock=-1 \\
    -v "$HOME/.cache:/root/.cache" -p 8000:8000 -e HF_TOKEN \\
    "vllm/vllm-openai:$TAG" --model /models/m --tensor-parallel-size "$GPUS"
for i in $(seq 1 60); do curl -sf localhost:8000/health && break; sleep 1; done
cat <<EOF
it's there: numactl -C 0-3
EOF
numactl --hardware | head -1
case $TAG in (latest) echo "latest" ;; *) echo other ;; esac
"""

SYSCTL = "# network\nnet.core.rmem_max = 67108864\nvm.swappiness = 10\nkernel.numa_balancing = 0\n"
GRUB = (
    'GRUB_DEFAULT=0\nGRUB_CMDLINE_LINUX="crashkernel=auto quiet iommu=pt numa_balancing=disable"\n'
)

ORDINARY = {
    "compose.yaml": COMPOSE,
    "rendered.yaml": RENDERED,
    "engine.service": UNIT,
    "run.sh": SCRIPT,
    "sysctl.d/90-a.conf": SYSCTL,
    "grub": GRUB,
    "other.yaml": "a: [1, 2]\nservices: enabled\nkind: thing\n",
    "values.yaml": "image: {repository: vllm/vllm-openai}\nresources: {}\n",
    "kustomization.yaml": "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\n",
    "workflow.yml": "on: [push]\njobs: {a: {services: {redis: {image: redis}}}}\n",
}


@pytest.mark.parametrize("name", ORDINARY)
@pytest.mark.parametrize("machine", [None, MACHINE], ids=["files", "machine"])
def test_no_alarm(name: str, machine: object) -> None:
    report = lint({name: ORDINARY[name].encode()}, MACHINE if machine else None, static=False)
    told = [
        f"{f.id} {f.status.value} {f.location}: {f.message}"
        for f in report.findings
        if f.status.value not in ("pass", "skip", "info")
    ]
    # How many GPUs a variable holds is not known: that is said, and is no alarm.
    assert [line for line in told if "filled in later" not in line] == []


def test_all_of_them_together() -> None:
    report = lint({name: text.encode() for name, text in ORDINARY.items()}, MACHINE, static=False)
    assert {f.status.value for f in report.findings} <= {"pass", "skip", "info", "unknown"}


def test_xml_of_others_is_no_topology() -> None:
    data = b'<?xml version="1.0"?>\n<testsuites><system-out>x</system-out></testsuites>\n'
    assert {f.status.value for f in lint({"junit.xml": data}).findings} == {"skip"}
