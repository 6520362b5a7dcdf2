"""What functions of the library read and write beside tensors. Knows no torch."""

from ctypes import Structure

from ramet.kernels.cpu.declarations import fields_of, struct_of

AttentionPlan = struct_of("plan.h", "Plan")
PlannedRows = struct_of("plan.h", "Step")
Operand = struct_of("latent.cpp", "Operand")
Operands = struct_of("latent.cpp", "Operands", Operand=Operand)
CallList = struct_of("replay.cpp", "Calls")


class ScoreRule(Structure):
    """What a layer does with its scores: scale, window, softcap, sinks. 0: no window, no cap, no sinks."""

    _fields_ = fields_of("attention.h", "Rule")


class ListedCall(Structure):
    """One call of a list: what is called, and the words of its arguments."""

    _fields_ = fields_of("replay.cpp", "Call")
