"""The training corpus: public English and JSON (`public/`), and generated structured documents (`structured/`)."""
