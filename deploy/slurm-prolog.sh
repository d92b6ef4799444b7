#!/bin/sh
# A prolog (slurm.conf: Prolog=/etc/slurm/numadoctor.sh): root runs it on each node before a job.
# Slurm drains a node whose prolog fails and requeues the job, so only a verdict may fail here:
# not a crash, not a machine of which nothing could be told.
told=$(/usr/local/bin/numadoctor check --select T,G,K --no-config -o npd)
[ $? -eq 1 ] || exit 0
scontrol update NodeName="${SLURMD_NODENAME:-$(uname -n)}" State=DRAIN Reason="numadoctor: $told"
exit 1
