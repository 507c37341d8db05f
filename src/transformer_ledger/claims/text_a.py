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
        "Where the components of query and key have variance 1, the dot product of a projected query and a projected "
        "key has standard deviation √d_k, which grows eightfold from d_k = 2 to d_k = 128.",
        "×8 from d_k = 2 to 128",
        "confirmed",
        why="q·k is a sum of d_k products. Each has mean 0 and variance 1·1, and they are uncorrelated, so the variances "
        "add up to d_k. Over drawn tokens and drawn projections the deviation grows {growth:.3g} times from the "
        "narrowest to the widest head. With tokens of variance 4 the components of q and k have variance 4 too, and "
        "the deviation is four times √d_k: at d_k = 2, {variance_2:.3g} in place of {variance_2.unchanged:.3g}. One "
        "fixed pair of projections has a mean square of its own: at d_k = 2 the deviation is {fixed_2:.3g}·√d_k.",
        equation="Var(q·k) = Σᵢ Var(qᵢkᵢ) = d_k·1·1; √(128/2) = 8, measured {growth:.4g}",
    ),
    Claim(
        "A4.2",
        "Scale of the scores",
        "score_scale",
        "Where the components of query and key have variance 1, the dot product divided by √d_k has standard deviation 1 "
        "at every width.",
        "1",
        "confirmed",
        why="The deviation of q·k is √d_k, and dividing by √d_k takes the width out. The decoder's attention multiplies "
        "the scores by just this factor; at d_k = 128 they come out with a deviation of {scaled_128:.4g}. Dividing by "
        "d_k goes too far: the deviation is then 1/√d_k, {divided_128:.3g} at d_k = 128, and attention starts uniform.",
        equation="√Var(q·k/√d_k) = √(d_k/d_k) = 1; √Var(q·k/d_k) = 1/√d_k",
    ),
    Claim(
        "A4.3",
        "Scale of the scores",
        "score_scale",
        "Without the division by √d_k the attention softmax of a wide model starts saturated, nearly one-hot, before "
        "any training: over 32 keys and with d_k = 128 the largest weight of a row is above ½ on average.",
        None,
        "confirmed",
        why="A softmax sees differences of scores, and each unit of difference is a factor of e between two weights. "
        "Unscaled scores are spread by √d_k, so at d_k = 128 the largest of 32 often stands several units above the "
        "next and takes most of the weight: {unscaled:.2f} on average, where each would have 0.03 in a uniform row. "
        "With the division the largest weight is {unscaled.unchanged:.2f}, and much the same at every width. What "
        "counts as saturated, ½, was fixed before.",
        equation="pᵢ/pⱼ = e^(sᵢ − sⱼ), s spread by √d_k = 11.3 at d_k = 128; divided by √d_k, spread by 1",
    ),
    Claim(
        "A5.1",
        "Order of the prefix",
        "permutation",
        "In one attention layer without positions, permuting the tokens before the last one leaves the last position's "
        "logits as they were.",
        "2.22e-16",
        "not reproducible",
        "The property holds. The printed digits are rounding that belongs to an initialisation that the text does not "
        "publish; ours are of the same magnitude.",
        why="The last token's query meets every key, and the output is a sum over the tokens seen, each weighted by its "
        "own score. Without positions score and value of a token do not depend on its place, and a sum does not depend "
        "on the order of its terms. In exact fractions all orders agree; in fp64 the order of the additions leaves "
        "{still_sequential:.2g}. With rotary positions the logits move by {rotated:.3g}.",
        equation="y_T = Σⱼ e^(q_T·kⱼ/√d_h)·vⱼ / Σⱼ e^(q_T·kⱼ/√d_h), j over the tokens seen, in any order",
    ),
    Claim(
        "A5.2",
        "Order of the prefix",
        "permutation",
        "With rotary positions the same permutations change the last position's logits, by up to 0.319.",
        "0.319",
        "not reproducible",
        "The logits change, far outside rounding. The printed digits belong to an initialisation that the text does not "
        "publish; ours are of the same magnitude.",
        why="RoPE makes a score depend on how far the key stands from the query. Moving a token changes its distance from "
        "the last position, hence its score and its weight: the logits move by up to {moved_4:.3g}, where the text's "
        "unpublished weights gave {printed_sequential.printed}. With every word at position 0 all distances are 0 and "
        "the change is gone ({control_4:.1g}).",
        equation="score = q_T·R((j − T)ω)kⱼ/√d_h depends on j; with all positions 0 it is q_T·kⱼ/√d_h",
    ),
    Claim(
        "A5.3",
        "Order of the prefix",
        "permutation",
        "Only the last position is unmoved: the causal mask gives every earlier position another set of tokens once "
        "the order changes.",
        None,
        "confirmed",
        why="Under the mask a token sees what stands before it. The last one sees all words in every order; an earlier "
        "one sees another set once the order changes, so its logits move wherever it stands, for the first word by "
        "up to {moved_0:.3g}. Without the mask every word sees all words in every order, and the change is gone "
        "({control_0:.1g}).",
        equation="seen by position t: {{1, …, t}}, which the order fills with other words; by position T: all of them",
    ),
    Claim(
        "A5.4",
        "Order of the prefix",
        "permutation",
        "With two layers under the causal mask the last position's logits do depend on the order of the prefix, even "
        "without positions.",
        None,
        "confirmed",
        why="The first layer's outputs at the earlier positions depend on the order, because the mask shows each of them "
        "another set of words. The second layer's last position reads those outputs, and so the order reaches it: its "
        "logits move by up to {moved_4:.3g}. Take the mask away and they stay ({control_4:.1g}): it is the mask that "
        "tells the order.",
        equation="layer 2 at T sums over layer 1's outputs y_t, and y_t depends on which words stand before t",
    ),
    Claim(
        "A6.1",
        "Rotary positions",
        "rope_relative",
        "Rotated by their positions, a query and a key have a dot product that depends on the difference of the "
        "positions alone.",
        "625 pairs, 49 groups, worst spread 1.33e-15",
        "not reproducible",
        "The property holds, exactly in symbols. The printed spread is rounding that belongs to a query and a key that "
        "the text does not publish; ours is of the same magnitude.",
        why="RoPE turns every pair of components by an angle proportional to the position. In the dot product of two "
        "turned pairs the angles enter as their difference alone, for turning both by the same angle keeps every "
        "angle between them. So all pairs of positions with the same m − n give one value: exactly in symbols and in "
        "fractions, and within {spread:.2g} in fp64. Turn the query alone and the values of one difference spread by "
        "{keys:.3g}.",
        equation="(R(mω)q)·(R(nω)k) = q·R(mω)ᵀR(nω)k = q·R((n − m)ω)k",
    ),
    Claim(
        "A6.2",
        "Rotary positions",
        "rope_relative",
        "The rotation keeps every vector's length.",
        "4.44e-16",
        "not reproducible",
        "The property holds, exactly in symbols. The printed change is rounding that belongs to a vector that the text "
        "does not publish; ours is of the same magnitude.",
        why="A rotation keeps the length of every pair of components, because cos² + sin² = 1, and the length of the "
        "vector is made up of the pairs' lengths. In fp64 it moves by {length:.2g} at most. A rotation stretched by a "
        "factor changes the length by {stretched:.3g}.",
        equation="(a·cos θ − b·sin θ)² + (a·sin θ + b·cos θ)² = (a² + b²)(cos² θ + sin² θ) = a² + b²",
    ),
    Claim(
        "A6.3",
        "Rotary positions",
        "rope_relative",
        "So rotary positions leave the scale of the scores alone: their standard deviation stays √d_k, and dividing by "
        "√d_k stays right.",
        None,
        "confirmed",
        why="Turning keeps lengths, so the components of a turned query and key have variance 1 as before, and the sum "
        "of their d_k products has variance d_k. Drawn as in A4, with query and key at random positions and divided by "
        "√d_k, the scores have a deviation of {rope_128:.4g} at d_k = 128. A rotation that also stretches by 2 makes "
        "it {stretched_128:.3g}.",
        equation="Var(R(mω)q · R(nω)k) = d_k; √(d_k/d_k) = 1, measured {rope_128:.4g}",
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
        why="Under the mask a position reads itself and what stands before it, so the tokens after it enter none of its "
        "sums except as exact zeros. Added in a fixed order these change no bit: {bits_sequential:d} of the positions "
        "differ, and the claim holds as printed. A library's matrix product chooses its order of summation by the "
        "shape, and the shape is another for every prefix: with NumPy's {bits_blas:d} positions differ, with torch's "
        "{bits_torch:d}, by rounding alone ({apart_blas:.1g} nat).",
        equation="y_t = Σ_(j ≤ t) p_tj·vⱼ + Σ_(j > t) 0·vⱼ; fl(Σ) depends on the order, and the order on the shape",
    ),
    Claim(
        "A7.2",
        "Causal prefix",
        "causal_prefix",
        "Without the causal mask the one pass and the prefix passes give different losses.",
        None,
        "confirmed",
        why="Without the mask every position but the last reads tokens that a pass over its prefix does not have: in exact "
        "fractions {differ:d} outputs differ. The losses are apart by up to {open:.2g} nat. With the mask put on they "
        "agree to within rounding.",
        equation="one pass: y_t = Σ_(j ≤ T) p_tj·vⱼ; its prefix: Σ_(j ≤ t) p_tj·vⱼ, with other weights p",
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
        why="To see the next token helps only a model that has learned to look one step to the right and copy. Drawn "
        "weights do no such thing: over many initialisations the mask makes a difference of less than "
        "{equivalent:.1%} of the letters, inside the margin of {equivalent.expected:.0%} named before. Trained on text "
        "without the mask, the model is right more often by {trained:.0%} at least. Shuffle the letters to be "
        "predicted, so that the next letter read is not the answer, and the gain is gone ({shuffled:.1%}). Given the "
        "prefix alone, the model trained without the mask has the larger loss (with the mask less without it: "
        "{alone:.2g} nat).",
        equation="gain = right(no mask) − right(mask): untrained |gain| ≤ {equivalent:.2g}, trained gain ≥ {trained:.2g}",
    ),
    Claim(
        "A8.1",
        "Parameter rule",
        "parameter_rule",
        "The parameters of the text's small model, added up piece by piece, are the number that counting its tensors "
        "gives.",
        "difference 0",
        "confirmed",
        why="The breakdown lists every tensor of the model with its shape and adds up the products of the shapes. A "
        "PyTorch model and the NumPy reference are built from the same description, and the numbers in their tensors "
        "are counted. All three give {count}. If any one kind of tensor is left out of the breakdown, the two numbers "
        "differ.",
        equation="2Vd + L(4d² + 3df) + (2L + 1)d = {count:,}",
    ),
    Claim(
        "A8.2",
        "Parameter rule",
        "parameter_rule",
        "For this model the rule of thumb 12nd² + Vd is 2,112 parameters short of the count.",
        "2,112",
        "confirmed",
        why="The rule allows 4d² weights for attention and 8d² for the feed-forward in each layer, and one table of Vd "
        "numbers. The model differs from that in three places. Its output layer has a second table ({head:+,}). Its "
        "feed-forward is a little narrower than 8d/3, because 8d/3 was rounded to a multiple of 8 ({feedforward:+,}). "
        "Its norms have weights too ({norms:+,}). Together these are the {missed:,} parameters that the rule misses.",
        equation="count − (12nd² + Vd) = {head:+,} {feedforward:+,} {norms:+,} = {missed:,}",
    ),
    Claim(
        "A8.3",
        "Parameter rule",
        "parameter_rule",
        "At this size that is an error of about 1 %.",
        "1 %",
        "confirmed",
        why="The rule misses {share:.2f} % of the count, which rounds to 1 %. The output layer's table alone is more than "
        "that: without it the difference would be {tied:.2f} %: the rule would count too much.",
        equation="(count − rule) / count = {share:.2f} %",
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
        why="The rule rests on three suppositions: keys and values as wide as queries, 8d² feed-forward weights in each "
        "layer, and one table for both embedding and output. Llama 3 8B breaks all three. As shares of the count, its "
        "wide feed-forward makes {llama_3_8b_feedforward:+.1f} %, grouped queries make {llama_3_8b_attention:+.1f} %, "
        "and the separate output layer makes {llama_3_8b_head:+.1f} %; together the rule misses {llama_3_8b:.1f} %. "
        "In Llama 3.1 405B the same terms nearly cancel ({llama_3_1_405b_feedforward:+.1f} %, "
        "{llama_3_1_405b_attention:+.1f} %, {llama_3_1_405b_head:+.1f} %) and leave {llama_3_1_405b:.2f} %. So the "
        "size of a model does not decide how good the rule is; its shape does.",
        equation="(count − rule) / count: Llama 3 8B {llama_3_8b_feedforward:+.1f} {llama_3_8b_attention:+.1f} "
        "{llama_3_8b_head:+.1f} = {llama_3_8b:.1f} %; LLaMA-1 65B {llama_1_65b:.2f} %; Llama 2 7B {llama_2_7b:.1f} %; "
        "Llama 3 70B {llama_3_70b:.1f} %; Llama 3.1 405B {llama_3_1_405b:.2f} %",
    ),
    Claim(
        "A9.1",
        "Training compute",
        "training_compute",
        "Training takes about 6ND operations: 6.30e24 for 70 billion parameters and 15 trillion tokens.",
        "6.30e24",
        "confirmed",
        why="Every weight takes part in one multiply-add for each token in the forward pass and in two more in the "
        "backward pass, and a multiply-add is 2 operations: 6 operations for each weight and token. For the weights "
        "of Llama 3 70B, counted on a PyTorch model of that shape, 6ND is {over_weights:.3f} times the work; it is a "
        "little above 1 because N includes the embedding, which multiplies nothing. Attention also multiplies queries "
        "by keys and probabilities by values. The rule leaves that out; at 8,192 tokens 6ND is {over_exact:.3f} of "
        "the exact count.",
        equation="C ≈ 6ND = {flops:.3g} FLOP; 6ND / exact count = {over_exact:.3f}",
    ),
    Claim(
        "A9.2",
        "Training compute",
        "training_compute",
        "16,000 H100 at an effective 400 TFLOP/s each give 6.4e18 FLOP/s and need 984,375 s, 11.4 days, for it.",
        "6.4e18 FLOP/s, 984,375 s, 11.4 days",
        "confirmed",
        why="The rate of the machine is the number of devices times the rate of one, {rate:.3g} FLOP/s. The time is the "
        "operations of A9.1 divided by that rate, {seconds:,} seconds. A day has 86,400 seconds, so this is "
        "{days:.1f} days. Half the devices would take twice as long.",
        equation="C / (devices · rate) = 6ND / {rate:.3g} = {seconds:,} s = {days:.1f} days",
    ),
    Claim(
        "A9.3",
        "Training compute",
        "training_compute",
        "That agrees with the published figures for Llama 3 70B, about 11 days.",
        "about 11 days",
        "refuted",
        "The model card publishes device-hours, and on 16,000 devices they last about half as long again. About a third of "
        "the difference is attention, which 6ND leaves out; the rest is an effective rate below the assumed 400 TFLOP/s.",
        why="Meta's model card for Llama 3 70B gives 6.4 million GPU-hours. On 16,000 GPUs these last {days:.1f} days, "
        "{more:.2f} more than the text's {assumed:.1f}. Attention's own products, which 6ND leaves out, account for "
        "{attention:.2f} of them at 8,192 tokens. The exact count of the weights changes the time by {weights:.2f} "
        "days. The other {lower_rate:.2f} days mean that a GPU did less than the assumed 400 TFLOP/s: by 6ND the card "
        "implies {rate:.0f} TFLOP/s with N = 70 billion, or {rate_llama_3_70b:.0f} with the exact N.",
        equation="{assumed:.2f} {weights:+.2f} {attention:+.2f} {lower_rate:+.2f} = {days:.2f} days. Implied rate 6ND / (3600 "
        "· GPU-hours) in TFLOP/s: Llama 3 8B {rate_llama_3_8b:.0f}, Llama 3 70B {rate_llama_3_70b:.0f}, Llama 3.1 8B "
        "{rate_llama_3_1_8b:.0f}, Llama 3.1 70B {rate_llama_3_1_70b:.0f}, Llama 3.1 405B {rate_llama_3_1_405b:.0f}",
    ),
    Claim(
        "A9.4",
        "Training compute",
        "training_compute",
        "The 6 is 2 operations a parameter and token forward and 4 backward: 2 for the weights' gradient and 2 for the "
        "inputs'.",
        "2 + 4",
        "confirmed",
        why="A linear map multiplies its input by a weight and adds: {forward} forward. The backward pass needs two such "
        "products, one for the gradient of the weights and one for the gradient of the input: {backward}. PyTorch's "
        "operation counter finds exactly this in every linear map of a small decoder. If the weights do not learn, "
        "the gradient of the input alone is left, {frozen:g} a weight and token. Exceptions: attention's own products "
        "have no weights, an embedding multiplies nothing, and the first maps need no gradient of their input where "
        "nothing before them learns.",
        equation="y = Wx: forward 2; ∂L/∂W = (∂L/∂y)xᵀ: 2; ∂L/∂x = Wᵀ(∂L/∂y): 2; together {forward:g} + {backward:g} = 6",
    ),
    Claim(
        "A9.5",
        "Training compute",
        "training_compute",
        "The rule holds for a mixture of experts with N the parameters that are active for a token.",
        None,
        "confirmed",
        why="A token passes through the router, through the experts that it is routed to and through the shared expert; "
        "it does not touch the weights of the other experts. In a small mixture and in Mixtral 8x7B the counted "
        "operations are {active:g} for each active weight and token. With all experts in N the same count would be "
        "{all:.2f} a weight and token. N is here the number of weights that multiply a token; embeddings, norms and "
        "biases do not.",
        equation="C = 6 · N_active · D; count / (N_active · D) = {active:g}, count / (N_all · D) = {all:.2f}",
    ),
    Claim(
        "A9.6",
        "Training compute",
        "training_compute",
        "The model that the text's sliders stand at (80 layers, d = 8192, V = 128,256) has 65.48 G parameters by the "
        "rule; with 15.0 T tokens it takes 5.89e24 FLOPs and 10.7 days.",
        "65.48 G parameters, 15.0 T tokens, 5.89e24 FLOPs, 10.7 days",
        "confirmed",
        why="The rule 12nd² + Vd gives the model's size from the three sliders. With 15.0 trillion tokens, 6ND gives the "
        "operations, and 16,000 devices at 400 TFLOP/s give the time. This is arithmetic: the exact size of a model "
        "of this shape differs from the rule (A8.4), and so does the published time (A9.3).",
        equation="N = 12·80·8192² + 128,256·8192 = {N:,}; 6ND = {flops:.3g} FLOP; {days:.1f} days",
    ),
)
