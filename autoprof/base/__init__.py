"""What every room uses: steps and summaries as values, statistics, the process, the files of a run, names and units."""
