"""Imported by the server of compiling processes, which then begin with their kernels ready."""

from diffinity.alignment import Vocabulary
from diffinity.serve.compiler import Allowance, compile_constraint
from diffinity.serve.constraints import ConstraintSpec

compile_constraint(
    ConstraintSpec("regex", "[ab]{2,9}"), Vocabulary([b"a", b"b", b""], eos_id=2), "eos", Allowance(10**9, 10**6)
)
