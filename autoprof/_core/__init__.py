"""What every room uses: safe names, units, plug-ins, options, notes, signals, and failures that are contained."""
