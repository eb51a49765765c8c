"""The referee: autoprof's times by module against an independent account made from ``torch.profiler``'s events."""
