"""The programs, one file a section; each is entered in the table by its decorator."""
