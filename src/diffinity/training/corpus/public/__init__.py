"""Public text as training documents: readers, cleaning, cutting, varied names, and the file that training reads."""
