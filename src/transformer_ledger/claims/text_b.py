"""The claims of text B, "Architecture and Cost: Toward Modern Implementations", section by section."""

from __future__ import annotations

from transformer_ledger.claims.claim import Claim

TITLE = "Architecture and Cost: Toward Modern Implementations"

CLAIMS: tuple[Claim, ...] = (
    Claim(
        "B1.1",
        "Parameters of the teaching decoder",
        "teaching_parameters",
        "The teaching decoder (learned positions, multi-head attention without biases, GELU feed-forward with "
        "biases, LayerNorms with biases, untied head without bias) has 2Vd + Cd + N(4d² + 2df + f + 5d) + 2d "
        "parameters in N layers.",
        "2Vd + Cd + N(4d² + 2df + f + 5d) + 2d",
        "confirmed",
    ),
    Claim(
        "B1.2",
        "Parameters of the teaching decoder",
        "teaching_parameters",
        "The number of parameters does not depend on the length T of the input; C is the number of rows of the "
        "position table.",
        None,
        "confirmed",
    ),
    Claim(
        "B1.3",
        "Parameters of the teaching decoder",
        "teaching_parameters",
        "The attention probabilities of one layer are one tensor of shape [B, h, T, T], so their memory grows "
        "with the square of the length.",
        "[B, h, T, T]",
        "confirmed",
    ),
    Claim(
        "B2.1",
        "Training state",
        "training_state",
        "Training in fp32 with AdamW keeps 16 bytes a parameter: 4 for the weight, 4 for the gradient and 8 for "
        "the two moments.",
        "16",
        "confirmed",
    ),
    Claim(
        "B2.2",
        "Training state",
        "training_state",
        "Sixteen bytes a parameter is not a law: other recipes keep other amounts, and activations, batches, "
        "work space and the allocator's reserve are not part of it.",
        None,
        "confirmed",
    ),
    Claim(
        "B3.1",
        "Matrix products",
        "matmul_scaling",
        "With a multiply-add counted as 2 FLOPs, one layer's forward pass costs 8BTd² for the four projections, "
        "4BTdf for the feed-forward and 4BT²d for scores and weighted values.",
        "8BTd², 4BTdf, 4BT²d",
        "confirmed",
    ),
    Claim(
        "B3.2",
        "Matrix products",
        "matmul_scaling",
        "A dense attention product costs the same with a causal mask as without it: masking a score does not "
        "skip its multiplication.",
        None,
        "confirmed",
    ),
    Claim(
        "B3.3",
        "Matrix products",
        "matmul_scaling",
        "Doubling the length doubles the projections' work and quadruples attention's own; doubling the batch "
        "doubles both.",
        "×2, ×4; ×2, ×2",
        "confirmed",
    ),
    Claim(
        "B4.1",
        "Rotary positions",
        "rope_algebra",
        "For plane rotations R(a)ᵀR(b) = R(b − a), so a rotated query and a rotated key see the difference of "
        "their positions alone.",
        "R(a)ᵀR(b) = R(b − a)",
        "confirmed",
    ),
    Claim(
        "B4.2",
        "Rotary positions",
        "rope_algebra",
        "The frequencies ω_i = 10000^(−2i/d_h), i = 0 … d_h/2 − 1, are a convention: any base gives a rotary "
        "encoding with the same properties, provided that the head width is even.",
        "10000^(−2i/d_h)",
        "confirmed",
    ),
    Claim(
        "B4.3",
        "Rotary positions",
        "rope_algebra",
        "With query and key at the same position the rotated dot product is the unrotated one, and moving both "
        "positions by one shift leaves it unchanged.",
        None,
        "confirmed",
    ),
    Claim(
        "B4.4",
        "Rotary positions",
        "rope_algebra",
        "That the rotation can be computed at any position does not make the context unlimited: the angle's "
        "rounding error grows with the position, and slow pairs reach angles that training never showed.",
        None,
        "confirmed",
    ),
    Claim(
        "B4.5",
        "Rotary positions",
        "rope_algebra",
        "Rotary attention turns the queries and the keys and leaves the values as they are.",
        None,
        "confirmed",
    ),
    Claim(
        "B5.1",
        "Grouped queries",
        "grouped_query",
        "In grouped-query attention query head i reads key/value head ⌊i/g⌋ with g = h_q/h_kv: of eight query "
        "heads over two key/value heads, 0–3 read head 0 and 4–7 read head 1.",
        "0–3 → 0, 4–7 → 1",
        "confirmed",
    ),
    Claim(
        "B5.2",
        "Grouped queries",
        "grouped_query",
        "With two key/value heads in place of eight the key/value cache is a quarter of the size.",
        "1/4",
        "confirmed",
    ),
    Claim(
        "B5.3",
        "Grouped queries",
        "grouped_query",
        "At d = 128 with eight query and two key/value heads of 16, query and output projections together have "
        "32,776 weights, key and value projections 81,912, and the sum is 40,960 of multi-head attention's "
        "65,536, five eighths.",
        "32,776; 81,912; 40,960 of 65,536; 5/8",
        "refuted",
        "Two misprints. Query and output projections have 2d² = 32,768 weights (printed 32,776), key and value "
        "projections 2d·h_kv·d_h = 8,192 (printed 81,912). The sum 40,960, the 65,536 and the five eighths are "
        "right.",
    ),
    Claim(
        "B5.4",
        "Grouped queries",
        "grouped_query",
        "Copying the key/value heads out to all query heads gives the same outputs and loses the memory that "
        "grouping saves.",
        None,
        "confirmed",
    ),
    Claim(
        "B5.5",
        "Grouped queries",
        "checkpoint",
        "Averaging the key/value heads of a trained multi-head model into groups does not keep its function.",
        None,
        "confirmed",
    ),
    Claim(
        "B6.1",
        "LayerNorm and RMSNorm",
        "norms",
        "Of the vector (1, 3), RMSNorm (root mean square √5) makes (0.447, 1.342) and LayerNorm makes (−1, 1).",
        "√5; (0.447, 1.342); (−1, 1)",
        "confirmed",
    ),
    Claim(
        "B6.2",
        "LayerNorm and RMSNorm",
        "norms",
        "Adding one constant to all components leaves LayerNorm's output as it was and changes RMSNorm's.",
        None,
        "confirmed",
    ),
    Claim(
        "B6.3",
        "LayerNorm and RMSNorm",
        "norms",
        "Multiplying all components by a positive number leaves both norms' outputs unchanged only where ε is 0.",
        None,
        "confirmed",
    ),
    Claim(
        "B6.4",
        "LayerNorm and RMSNorm",
        "norms",
        "RMSNorm takes fewer operations than LayerNorm, which does not say that it is faster: that has to be measured.",
        None,
        "confirmed",
    ),
    Claim(
        "B7.1",
        "Gated feed-forward",
        "gated_feedforward",
        "The gated feed-forward is F(x) = [SiLU(xW_g) ⊙ (xW_u)]W_d with W_g and W_u of shape [d, f] and W_d of "
        "shape [f, d].",
        "[SiLU(xW_g) ⊙ (xW_u)]W_d",
        "confirmed",
    ),
    Claim(
        "B7.2",
        "Gated feed-forward",
        "gated_feedforward",
        "At an equal number of weights the gated feed-forward is two thirds as wide as the plain one: f = 4d "
        "becomes 8d/3.",
        "8d/3",
        "confirmed",
    ),
    Claim(
        "B7.3",
        "Gated feed-forward",
        "gated_feedforward",
        "The gate's third matrix is not free: at equal width it adds half as many weights and FLOPs again, at "
        "equal budget it adds none.",
        None,
        "confirmed",
    ),
    Claim(
        "B8.1",
        "Online softmax",
        "online_softmax",
        "Attention that reads its keys block by block, keeping a running maximum m, denominator a and numerator "
        "o, gives what the dense softmax gives.",
        "1e-12",
        "confirmed",
    ),
    Claim(
        "B8.2",
        "Online softmax",
        "online_softmax",
        "The order in which the blocks are read does not matter.",
        None,
        "confirmed",
    ),
    Claim(
        "B8.3",
        "Online softmax",
        "online_softmax",
        "Masking after the block's maximum is taken, or a row with every key masked, gives undefined values "
        "unless the algorithm says what to return.",
        None,
        "confirmed",
    ),
    Claim(
        "B8.4",
        "Online softmax",
        "online_softmax",
        "The first block starts from m = −∞, where the rescaling factor exp(−∞ − (−∞)) is undefined unless guarded.",
        None,
        "confirmed",
    ),
    Claim(
        "B9.1",
        "Attention schedules",
        "attention_schedules",
        "Kernels of the FlashAttention kind save memory traffic; the number of arithmetic operations keeps its order.",
        None,
        "confirmed",
    ),
    Claim(
        "B10.1",
        "Function or schedule",
        "classification",
        "Each modern change is either a change of the model's function or a change of the order of execution.",
        None,
        "confirmed",
    ),
    Claim(
        "B10.2",
        "Function or schedule",
        "classification",
        "Putting rotary positions or grouped queries into an old checkpoint changes its scores.",
        None,
        "confirmed",
    ),
)
