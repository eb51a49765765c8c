#!/bin/bash
#SBATCH --job-name=train
#SBATCH --nodes=4
#SBATCH --time=24:00:00
#SBATCH --mem=512G
srun python train.py --lr 0.1 --batch-size 256 --epochs 90 --step-size 30
