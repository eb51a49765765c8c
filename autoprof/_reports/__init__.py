"""From data to text or a figure. A renderer is a function: it opens nothing, prints nothing and keeps nothing."""
