"""The claims of text A, "L'arquitectura Transformer", section by section."""

from __future__ import annotations

from transformer_ledger.claims.claim import Claim

TITLE = "L'arquitectura Transformer"

CLAIMS: tuple[Claim, ...] = (
    Claim(
        "A1.1",
        "Embedding lookup",
        "embedding_lookup",
        "A one-hot row times a 29 × 24 embedding table gives, bit for bit, the 24 numbers that reading the row gives.",
        "24 of 24, worst difference 0",
        "conditional",
        "The table holds no −0.0 (it comes back as +0.0) and no infinity or NaN in another row (0 · ∞ is NaN, and the "
        "sum takes it in).",
        why="In the sum over the table's rows every product but one is 0 times a number, which is 0, and adding 0 rounds "
        "nothing: the entry comes back bit for bit. Two kinds of entry break this. A −0.0 is added to +0.0 and comes "
        "back as +0.0, another bit pattern of the same number. An infinity in another row is multiplied by 0, which is "
        "NaN, and the NaN stays in the sum: {infinity_sequential} differ.",
        equation="Σⱼ eⱼ·Eⱼ = 0·E₁ + … + 1·Eᵢ + … + 0·E_V = Eᵢ",
    ),
    Claim(
        "A1.2",
        "Embedding lookup",
        "embedding_lookup",
        "The one-hot product costs as many multiplications as the table has entries, 696, where the lookup costs one "
        "indexed read.",
        "696",
        "confirmed",
        why="A row with V entries times a table with d columns takes one multiplication for every entry of the table, "
        "whatever the entries are: multiplying by 0 is counted like any other. The counted arithmetic multiplies "
        "{products:d} times. Reading the row by its index multiplies nothing.",
        equation="V·d = {products:d}",
    ),
    Claim(
        "A2.1",
        "Output projection",
        "output_projection",
        "Concatenating the heads and multiplying by W_O equals the sum over heads of head h times its own d_h rows of "
        "W_O.",
        "worst component 2.22e-16",
        "not reproducible",
        "The equality holds, exactly in fractions. The printed digits are rounding that belongs to weights and tokens "
        "that the text does not publish; ours are of the same magnitude.",
        why="A row of the concatenation is the heads' rows beside each other. Its product with W_O multiplies component "
        "j by row j of W_O and adds up over j; grouping the sum by head changes the order of the additions and "
        "nothing else. Run in exact fractions, with every head computed alone, both sides are equal for every H. In "
        "fp64 the order shows: the worst component differs by {worst_sequential:.3g}. A head multiplied by another "
        "head's rows gives another output altogether.",
        equation="concat(head₁, …, head_H)·W_O = Σ_h head_h·W_O^(h), W_O^(h) being rows (h−1)·d_h + 1 to h·d_h",
    ),
    Claim(
        "A2.2",
        "Output projection",
        "output_projection",
        "With a single head the table of contributions has one row, which is the output itself and so says nothing.",
        "1 row",
        "confirmed",
        why="With one head d_h = d: the head owns every row of W_O, so its contribution is the whole output, bit for "
        "bit. A table with this one row repeats the output and divides nothing. With several heads the first row is "
        "a part: {several:d} of its components differ from the output's.",
        equation="H = 1: Σ_h head_h·W_O^(h) = head₁·W_O",
    ),
    Claim(
        "A2.3",
        "Output projection",
        "output_projection",
        "Because the output is a sum over heads, each head's share in it can be stated: the shares add up to "
        "the whole.",
        None,
        "confirmed",
        why="Take the part of a head's contribution that points along the output, as a fraction of the output's length. "
        "The contributions add up to the output, so these fractions add up to 1: exactly in fractions, and to within "
        "{sum:.1g} in fp64. A share is length times cosine over the output's length, so a long contribution that "
        "points elsewhere has a small share, and one that points backwards has a negative one.",
        equation="Σ_h ⟨head_h·W_O^(h), y⟩ / ⟨y, y⟩ = ⟨y, y⟩ / ⟨y, y⟩ = 1, y = Σ_h head_h·W_O^(h)",
    ),
    Claim(
        "A3.1",
        "Number of heads",
        "head_count",
        "Multi-head attention of width d has 4d² weights, whatever the number of heads that divides d.",
        "d × d each",
        "confirmed",
        why="A head has width d_h = d/H, so H heads together have H·d/H = d components. The matrices of query, key and "
        "value map d components to d, and the output projection maps d back to d, whatever H is. Counted on the "
        "decoder's tensors for every divisor of d. It is the number of key/value heads that saves weights: with one "
        "for all query heads, d = 24 has {one_24:,} weights in place of {weights_24:,}.",
        equation="3·d·(H·d/H) + (H·d/H)·d = 4d² = {weights_24:,} for d = 24",
    ),
    Claim(
        "A3.2",
        "Number of heads",
        "head_count",
        "Drawn from one seed, the parameter vector has the same norm to nine digits for every number of heads: it is "
        "literally the same vector.",
        "nine digits",
        "confirmed",
        why="The tensors have the same shapes for every number of heads, and a seeded generator fills them in the same "
        "order with the same numbers. The number of heads only says later where a matrix is cut. So the vectors agree "
        "in every bit, which is more than nine digits of the norm; another seed changes the norm by {seed:.1%}.",
        equation="θ(H, seed) = θ(1, seed), hence ‖θ(H, seed)‖ = ‖θ(1, seed)‖",
    ),
    Claim(
        "A3.3",
        "Number of heads",
        "head_count",
        "The same weights with another number of heads compute another function: one head gives a token one attention "
        "pattern, H heads give it H.",
        None,
        "confirmed",
        why="Each head has its own softmax over its own d_h components of query and key, so H heads look at the prefix "
        "in H different ways; with two heads the two patterns differ by {distance_2:.0%} of their weight. The softmax "
        "is not linear, so cutting the scores into H parts changes the output: two heads move the logits of the last "
        "token by {tied_2.unchanged:.2g}. Where every head is made to look as the first one does, the cut has no "
        "effect: the logits agree to within rounding and there is one pattern.",
        equation="head_h = softmax(Q_h·K_hᵀ/√d_h)·V_h; if all patterns are P, concat(P·V₁, …, P·V_H) = P·V",
    ),
    Claim(
        "A4.1",
        "Scale of the scores",
        "score_scale",
        "The dot product of a projected query and a projected key has standard deviation √d_k, which grows eightfold "
        "from d_k = 2 to d_k = 128.",
        "×8 from d_k = 2 to 128",
        "confirmed",
    ),
    Claim(
        "A4.2",
        "Scale of the scores",
        "score_scale",
        "Divided by √d_k the dot product has standard deviation 1 at every width.",
        "1",
        "confirmed",
    ),
    Claim(
        "A4.3",
        "Scale of the scores",
        "score_scale",
        "Without the division by √d_k the attention softmax of a wide model starts saturated, nearly one-hot, before "
        "any training.",
        None,
        "confirmed",
    ),
    Claim(
        "A5.1",
        "Order of the prefix",
        "permutation",
        "In one attention layer without positions, permuting the tokens before the last one leaves the last position's "
        "logits as they were.",
        "2.22e-16",
        "confirmed",
    ),
    Claim(
        "A5.2",
        "Order of the prefix",
        "permutation",
        "With rotary positions the same permutations change the last position's logits, by up to 0.319.",
        "0.319",
        "not reproducible",
        "The digits belong to an initialisation that the text does not publish. That the logits change, far outside "
        "rounding, is settled.",
    ),
    Claim(
        "A5.3",
        "Order of the prefix",
        "permutation",
        "Only the last position is unmoved: the causal mask gives every earlier position another set of tokens once "
        "the order changes.",
        None,
        "confirmed",
    ),
    Claim(
        "A5.4",
        "Order of the prefix",
        "permutation",
        "With two layers under the causal mask the last position's logits do depend on the order of the prefix, even "
        "without positions.",
        None,
        "confirmed",
    ),
    Claim(
        "A6.1",
        "Rotary positions",
        "rope_relative",
        "Rotated by their positions, a query and a key have a dot product that depends on the difference of the "
        "positions alone.",
        "625 pairs, 49 groups, worst spread 1.33e-15",
        "confirmed",
    ),
    Claim(
        "A6.2",
        "Rotary positions",
        "rope_relative",
        "The rotation keeps every vector's length.",
        "4.44e-16",
        "confirmed",
    ),
    Claim(
        "A6.3",
        "Rotary positions",
        "rope_relative",
        "So rotary positions leave the scale of the scores alone: their standard deviation stays √d_k, and dividing by "
        "√d_k stays right.",
        None,
        "confirmed",
    ),
    Claim(
        "A7.1",
        "Causal prefix",
        "causal_prefix",
        "Under the causal mask one forward pass over 11 positions gives every position exactly the loss that a forward "
        "pass over its prefix alone gives its last one.",
        "0 exactly, each position",
        "conditional",
        "Every sum is taken in an order that does not depend on the shape. Library kernels choose theirs by the shape, "
        "and then the losses agree within rounding only.",
    ),
    Claim(
        "A7.2",
        "Causal prefix",
        "causal_prefix",
        "Without the causal mask the one pass and the prefix passes give different losses.",
        None,
        "confirmed",
    ),
    Claim(
        "A7.3",
        "Causal prefix",
        "causal_prefix",
        "Without the causal mask a position would predict its next token better, since it has the token before it.",
        None,
        "conditional",
        "The model was trained without the mask: an untrained one predicts no better for seeing the future, it has to "
        "learn to copy it.",
    ),
    Claim(
        "A8.1",
        "Parameter rule",
        "parameter_rule",
        "The parameters of the text's small model, added up piece by piece, are the number that counting its tensors "
        "gives.",
        "difference 0",
        "confirmed",
    ),
    Claim(
        "A8.2",
        "Parameter rule",
        "parameter_rule",
        "For this model the rule of thumb 12nd² + Vd is 2,112 parameters short of the count.",
        "2,112",
        "confirmed",
        needs_control=False,
    ),
    Claim(
        "A8.3",
        "Parameter rule",
        "parameter_rule",
        "At this size that is an error of about 1 %.",
        "1 %",
        "confirmed",
        needs_control=False,
    ),
    Claim(
        "A8.4",
        "Parameter rule",
        "parameter_rule",
        "At Llama's scale the rule's error drops below half a per cent.",
        "< 0.5 %",
        "refuted",
        "Size is not what decides: the rule supposes full-width keys and values, 8d² weights in the feed-forward and "
        "one table for embedding and head. Grouped queries, a wider feed-forward and an untied head each move the "
        "count, and a small error is terms of opposite sign cancelling.",
        needs_control=False,
    ),
    Claim(
        "A9.1",
        "Training compute",
        "training_compute",
        "Training takes about 6ND operations: 6.30e24 for 70 billion parameters and 15 trillion tokens.",
        "6.30e24",
        "confirmed",
        needs_control=False,
    ),
    Claim(
        "A9.2",
        "Training compute",
        "training_compute",
        "16,000 H100 at an effective 400 TFLOP/s each give 6.4e18 FLOP/s and need 984,375 s, 11.4 days, for it.",
        "6.4e18 FLOP/s, 984,375 s, 11.4 days",
        "confirmed",
        needs_control=False,
    ),
    Claim(
        "A9.3",
        "Training compute",
        "training_compute",
        "That agrees with the published figures for Llama 3 70B, about 11 days.",
        "about 11 days",
        "refuted",
        "The model card publishes device-hours, and on 16,000 devices they last about half as long again: the "
        "effective rate was well below the 400 TFLOP/s assumed.",
        needs_control=False,
    ),
    Claim(
        "A9.4",
        "Training compute",
        "training_compute",
        "The 6 is 2 operations a parameter and token forward and 4 backward: 2 for the weights' gradient and 2 for the "
        "inputs'.",
        "2 + 4",
        "confirmed",
    ),
    Claim(
        "A9.5",
        "Training compute",
        "training_compute",
        "The rule holds for a mixture of experts with N the parameters that are active for a token.",
        None,
        "confirmed",
    ),
    Claim(
        "A9.6",
        "Training compute",
        "training_compute",
        "The model that the text's sliders stand at (80 layers, d = 8192, V = 128,256) has 65.48 G parameters by the "
        "rule; with 15.0 T tokens it takes 5.89e24 FLOPs and 10.7 days.",
        "65.48 G parameters, 15.0 T tokens, 5.89e24 FLOPs, 10.7 days",
        "confirmed",
        needs_control=False,
    ),
)
