"""Public text as training documents: read, cleaned, cut to length, with varied names, in one file."""
