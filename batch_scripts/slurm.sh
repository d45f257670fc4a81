#!/usr/bin/env bash
# A fleet run on two nodes of four GPUs under Slurm: one rank a GPU, and one CPU rank a node that prepares samples.
# Adapt the lines marked <-, then: sbatch batch_scripts/slurm.sh
#SBATCH --job-name=fleet
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=5
#SBATCH --gpus-per-node=4
#SBATCH --cpus-per-task=8
#SBATCH --time=04:00:00
#SBATCH --requeue
#SBATCH --signal=B:USR1@180
set -euo pipefail

SPEC=${SPEC:-ensemble.yaml}          # <- the ensemble
OUT=${OUT:-runs/ensemble}            # <- the run directory, on the parallel file system
PREPROCESSORS=${PREPROCESSORS:-2}    # <- of the ranks above; all others train

# <- what the site needs: modules, the environment
# module load openmpi
# source .venv/bin/activate
export FLEET_MPI=system OMP_NUM_THREADS=1

# Slurm tells this shell of the coming end; the ranks get it passed on, checkpoint at a step boundary and end with 75.
srun --mpi=pmix --kill-on-bad-exit=1 fleet run "$SPEC" --out "$OUT" --preprocessors "$PREPROCESSORS" &
ranks=$!
trap 'kill -USR1 "$ranks"' USR1
code=0
wait "$ranks" || code=$?
while kill -0 "$ranks" 2>/dev/null; do   # a signal ended the wait, not the ranks
    code=0
    wait "$ranks" || code=$?
done

if [ "$code" -eq 75 ]; then
    scontrol requeue "$SLURM_JOB_ID"     # the same command goes on from the checkpoints
fi
exit "$code"
