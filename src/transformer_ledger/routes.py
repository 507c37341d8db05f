"""Routes by which a value can come about. Two sides of a comparison must not share one."""

FORMULA = "closed form"
LEDGER = "ledger"
SYMBOLS = "SymPy"
RATIONAL = "rational arithmetic"
DECIMAL = "decimal arithmetic"
ENUMERATION = "counted one by one"
SEQUENTIAL = "NumPy reference, one term after another"
BLAS = "NumPy reference, BLAS"
SHAPES = "shapes of the NumPy reference's tensors"
TORCH = "torch"
MODULE = "our torch decoder"
COUNTER = "torch's operation counter"
TENSORS = "storage of real tensors"
TRANSFORMERS = "transformers"
SAMPLES = "samples drawn"
SAMPLING = "sampling theory"
BOUND = "bound, set before the measurement"
MARGIN = "limit that we chose before the run"
CLOCK = "clock"
TEXT = "the text"
PUBLISHED = "published"
BACKENDS = {
    SYMBOLS: "symbolic",
    RATIONAL: "rational",
    SEQUENTIAL: "sequential",
    BLAS: "blas",
    **dict.fromkeys((TORCH, MODULE, COUNTER, TENSORS, TRANSFORMERS), "torch"),
}

ARITHMETICS = {"sequential": SEQUENTIAL, "blas": BLAS, "rational": RATIONAL}
"""Route of a value that the NumPy reference computed, by the name of its arithmetic."""
