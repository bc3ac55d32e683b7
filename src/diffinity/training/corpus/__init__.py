"""The training corpus: public English and JSON (`public/`), and structured documents of ours (`structured/`)."""
