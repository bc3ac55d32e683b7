"""Imported by the process that forks the compiling processes, so that their kernels are ready at the start."""

from diffinity.alignment import Vocabulary
from diffinity.serve.compiler import Allowance, compile_constraint
from diffinity.serve.constraints import ConstraintSpec

compile_constraint(
    ConstraintSpec("regex", "[ab]{2,9}"), Vocabulary([b"a", b"b", b""], eos_id=2), "eos", Allowance(10**9, 10**6)
)
