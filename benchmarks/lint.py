"""How long ``lint`` takes for 1,000 manifests beside reading the same files with PyYAML alone.

The peer is a Python that calls ``yaml.safe_load_all`` on each file, once with the
parser in Python (what a plain ``yaml.safe_load`` takes) and once with the one in C.
Both run in turn, so that a machine whose speed drifts favours neither; printed are
medians, and the median of the ratios pair by pair.
"""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ENVIRONMENT = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
MANIFESTS = 1000
MOST_SECONDS = 5.0

DEPLOYMENT = """\
apiVersion: apps/v1
kind: Deployment
metadata:
  name: engine-{n}
  namespace: llm
  labels: {{app: engine, shard: "{n}"}}
spec:
  replicas: 2
  selector:
    matchLabels: {{app: engine, shard: "{n}"}}
  template:
    metadata:
      labels: {{app: engine, shard: "{n}"}}
    spec:
      nodeSelector: {{pool: gpu}}
      tolerations:
      - {{key: nvidia.com/gpu, operator: Exists, effect: NoSchedule}}
      volumes:
      - name: shm
        emptyDir: {{medium: Memory, sizeLimit: 16Gi}}
      - name: models
        persistentVolumeClaim: {{claimName: models}}
      containers:
      - name: engine
        image: vllm/vllm-openai:v0.11.0
        command: ["vllm", "serve", "/models/m", "--tensor-parallel-size", "4", "--numa-bind"]
        env:
        - {{name: HF_HOME, value: /models/cache}}
        - name: TOKEN
          valueFrom: {{secretKeyRef: {{name: hub, key: token}}}}
        ports:
        - {{containerPort: 8000, name: http}}
        readinessProbe:
          httpGet: {{path: /health, port: http}}
          periodSeconds: 10
        resources:
          requests: {{cpu: "32", memory: 256Gi, nvidia.com/gpu: 4}}
          limits: {{cpu: "32", memory: 256Gi, nvidia.com/gpu: 4}}
        volumeMounts:
        - {{name: shm, mountPath: /dev/shm}}
        - {{name: models, mountPath: /models}}
---
apiVersion: v1
kind: Service
metadata: {{name: engine-{n}, namespace: llm}}
spec:
  selector: {{app: engine, shard: "{n}"}}
  ports: [{{port: 80, targetPort: http}}]
"""

READ = """\
import pathlib, sys, yaml
for path in sorted(pathlib.Path(sys.argv[1]).iterdir()):
    for _ in yaml.load_all(path.read_text(), yaml.{loader}):
        pass
"""


def seconds(command: list[str]) -> float:
    """Wall time of one run; its output is thrown away."""
    start = time.perf_counter()
    subprocess.run(command, stdout=subprocess.DEVNULL, env=ENVIRONMENT, check=False)
    return time.perf_counter() - start


def main() -> int:
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    with tempfile.TemporaryDirectory() as folder:
        for number in range(MANIFESTS):
            (Path(folder) / f"{number:04}.yaml").write_text(DEPLOYMENT.format(n=number))
        lint = [sys.executable, "-m", "numadoctor", "lint", "--no-config", folder]
        seconds(lint)
        print(
            f"medians of {runs} paired runs, {MANIFESTS:,} files, Python {sys.version.split()[0]}"
        )
        took = []
        for loader in ("SafeLoader", "CSafeLoader"):
            peer = [sys.executable, "-c", READ.format(loader=loader), folder]
            pairs = [(seconds(lint), seconds(peer)) for _ in range(runs)]
            ours, theirs = (statistics.median(column) for column in zip(*pairs, strict=True))
            ratio = statistics.median(one / other for one, other in pairs)
            took.append(ours)
            print(f"lint {ours:5.2f} s   yaml {loader:11} {theirs:5.2f} s   ratio {ratio:5.2f}x")
    return int(min(took) > MOST_SECONDS)


if __name__ == "__main__":
    sys.exit(main())
