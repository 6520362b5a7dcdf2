"""What functions of the library read and write beside tensors. Knows no torch."""

from ctypes import Structure

from ramet.kernels.cpu.declarations import fields_of


class AttentionPlan(Structure):
    """How the attention of a step is cut, for one shape of heads."""

    _fields_ = fields_of("plan.h", "Plan")


class PlannedRows(Structure):
    """The rows of a step, which a plan is made for."""

    _fields_ = fields_of("plan.h", "Step")


class ScoreRule(Structure):
    """What a layer does with its scores: scale, window, softcap, sinks. 0: no window, no cap, no sinks."""

    _fields_ = fields_of("attention.h", "Rule")


class Operand(Structure):
    """A part of queries, keys or values of latent attention."""

    _fields_ = fields_of("latent.cpp", "Operand")


class Operands(Structure):
    """All parts that latent attention reads, and where it writes."""

    _fields_ = fields_of("latent.cpp", "Operands", Operand=Operand)


class ListedCall(Structure):
    """One call of a list."""

    _fields_ = fields_of("replay.cpp", "Call")


class CallList(Structure):
    """Calls that run one after the other."""

    _fields_ = fields_of("replay.cpp", "Calls")
