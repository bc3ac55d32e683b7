"""Turns public text into training documents: reads, cleans and cuts it, varies names, and writes one file."""
