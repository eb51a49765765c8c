"""Views: functions from data to text or a figure. They open no file, print nothing and hold no state."""
