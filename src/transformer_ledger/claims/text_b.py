"""The claims of text B, "Architecture and Cost: Toward Modern Implementations", section by section."""

from __future__ import annotations

from transformer_ledger.claims.claim import Claim

TITLE = "Architecture and Cost: Toward Modern Implementations"

CLAIMS: tuple[Claim, ...] = (
    Claim(
        "B1.1",
        "Parameters of the teaching decoder",
        "teaching_parameters",
        "With N layers, the text's decoder (learned positions, multi-head attention without biases, GELU feed-forward "
        "with biases, LayerNorms with biases, separate output layer without bias) has 2Vd + Cd + N(4d² + 2df + f + "
        "5d) + 2d parameters.",
        "2Vd + Cd + N(4d² + 2df + f + 5d) + 2d",
        "confirmed",
        why="Every part of the decoder has its term: the token table and the output layer Vd each, the position table "
        "Cd; in each of N layers four d × d maps in attention, two d × f maps with biases f and d in the "
        "feed-forward, and two LayerNorms of 2d numbers; and a final LayerNorm of 2d. The sum of the ledger's rows, "
        "in symbols, is this formula, and PyTorch decoders of several shapes have exactly this number of parameters. "
        "With biases in attention, or with one table for embedding and output, the number is different.",
        equation="P = 2Vd + Cd + N(4d² + 2df + f + 5d) + 2d; the largest decoder counted: {parameters:,}",
    ),
    Claim(
        "B1.2",
        "Parameters of the teaching decoder",
        "teaching_parameters",
        "The number of parameters does not depend on the length T of the input; C is the number of rows of the "
        "position table.",
        None,
        "confirmed",
        why="The same weights are applied at every position, so a longer input needs no further weights. The formula "
        "does not contain T. We ran one decoder at several lengths, and its number of parameters was always the same. "
        "What limits the length is C, the number of rows of the position table, which is fixed when the model is "
        "built. If the table had one row for each token of the input, the decoders for different lengths would have "
        "{sized_by_T:g} different numbers of parameters.",
        equation="∂P/∂T = 0, ∂P/∂C = d",
    ),
    Claim(
        "B1.3",
        "Parameters of the teaching decoder",
        "teaching_parameters",
        "The attention probabilities of one layer are one tensor of shape [B, h, T, T], so their memory grows with "
        "the square of the length.",
        "[B, h, T, T]",
        "confirmed",
        why="In each of B sequences, each of h heads has one probability for every pair of a query and a key: T × T "
        "numbers. We read the shape and the bytes of this tensor while attention runs. When T doubles, it is "
        "{growth:g} times as large. A fused kernel gives the same output and never stores this tensor: when T "
        "doubles, its largest tensor is {fused:g} times as large.",
        equation="bytes = B·h·T²·b; (2T)² / T² = {growth:g}",
    ),
    Claim(
        "B2.1",
        "Training state",
        "training_state",
        "Training in fp32 with AdamW keeps 16 bytes per parameter: 4 for the weight, 4 for the gradient and 8 for the "
        "two moments.",
        "16",
        "confirmed",
        why="An fp32 number takes 4 bytes. After one AdamW step each parameter has a weight, a gradient and two "
        "running averages of the gradient, one of its values and one of their squares: four numbers. We read the "
        "bytes from the storage of the real tensors. PyTorch also stores one step counter for each tensor, {step} in "
        "total here; the 16 bytes do not include it. SGD without momentum stores no averages, so it needs {sgd:g} "
        "bytes per parameter.",
        equation="4 (weight) + 4 (gradient) + 4 + 4 (moments) = {adamw:g} bytes/parameter",
    ),
    Claim(
        "B2.2",
        "Training state",
        "training_state",
        "Sixteen bytes per parameter is not true for all training: mixed precision and other recipes can need other "
        "amounts, and the 16 bytes do not include activations, batches, work space or the allocator's reserve.",
        None,
        "confirmed",
        why="How many bytes a parameter takes depends on the types and on the optimiser. With every item in bf16 "
        "AdamW keeps {bf16.unchanged:g} bytes, with every item in fp32 {bf16:g}. We ran {recipes:g} recipes, and "
        "{other:g} of them need an amount other than 16 bytes; we say nothing about recipes that we did not run. Some "
        "recipes use other types and still need 16 bytes: bf16 weights and gradients, an fp32 copy of the weights and "
        "fp32 moments are 2 + 2 + 4 + 8. What the forward pass saves for the backward pass is extra and grows with "
        "the batch: {activations_1} for one sequence, {activations_4} for four.",
        equation="bytes per parameter = weight + copy of the weight + gradient + moments; AdamW: 4 · 2 = "
        "{bf16.unchanged:g} in bf16, 4 · 4 = {bf16:g} in fp32",
    ),
    Claim(
        "B3.1",
        "Matrix products",
        "matmul_scaling",
        "With a multiply-add counted as 2 FLOPs, one layer's forward pass costs 8BTd² for the four projections, 4BTdf "
        "for the feed-forward and 4BT²d for scores and weighted values.",
        "8BTd², 4BTdf, 4BT²d",
        "confirmed",
        why="A map from m to n numbers is mn multiply-adds for each of BT tokens, which is 2mn FLOPs. Four d × d "
        "projections give 8d², two d × f maps give 4df. The scores multiply each of T queries with T keys (d numbers "
        "over all heads), 2T²d FLOPs; the weighted values cost the same again; together 4T²d for each sequence. "
        "PyTorch's counter gives exactly these numbers for our decoder at every tested batch and length. The output "
        "layer adds 2BTVd. Softmax, GELU, norms and biases are not matrix products. If one product is left out or "
        "computed twice, the count differs.",
        equation="over all N layers of the largest run: 8BTd²N = {projections:,}, 4BTdfN = {feed:,}, 4BT²dN = "
        "{scores:,} FLOP",
    ),
    Claim(
        "B3.2",
        "Matrix products",
        "matmul_scaling",
        "A dense attention product costs the same with a causal mask as without it: masking a score does not skip its "
        "multiplication.",
        None,
        "confirmed",
        why="A dense kernel multiplies every query by every key and only then overwrites the hidden scores with −∞. "
        "So the counter finds {masked_True:,} FLOPs with the mask and {masked_False:,} without. A kernel that skips "
        "fully masked blocks of keys needs {skipped:,} FLOPs. The minimum, only the visible pairs, is {pairs:,}.",
        equation="dense 4BT²d = {masked_True:,}; visible pairs 4B·T(T + 1)/2·d = {pairs:,}",
    ),
    Claim(
        "B3.3",
        "Matrix products",
        "matmul_scaling",
        "Doubling the length doubles the FLOPs of the projections and multiplies those of scores and values by four; "
        "doubling the batch doubles both.",
        "×2, ×4; ×2, ×2",
        "confirmed",
        why="A projection works on each token by itself, so its FLOPs are proportional to B and to T. Scores and "
        "values pair each token with each token of the same sequence: proportional to B and to T². In our decoder, "
        "twice the length costs {length_projections:g} times the FLOPs for the projections and {length_scores:g} "
        "times for scores and values; twice the batch costs {batch_projections:g} times the FLOPs for both. For one "
        "new token, with the other tokens in a cache, twice the length costs only {decode:g} times the FLOPs for "
        "scores and values.",
        equation="8B(2T)d² / 8BTd² = {length_projections:g}; 4B(2T)²d / 4BT²d = {length_scores:g}",
    ),
    Claim(
        "B4.1",
        "Rotary positions",
        "rope_rotation",
        "For plane rotations R(a)ᵀR(b) = R(b − a), so the dot product of a rotated query and a rotated key depends "
        "only on the difference of their positions.",
        "R(a)ᵀR(b) = R(b − a)",
        "confirmed",
        why="A rotation by −a undoes a rotation by a, and the transpose of a rotation is its inverse. Rotating back "
        "by a and forward by b is therefore one rotation by b − a. It depends on a and b only through their "
        "difference. The proof applies the rotation code of our NumPy decoder to symbols: all entries of the two 2 × "
        "2 matrices are equal. If the rotation has the opposite direction, the product is R(a − b), and "
        "{backwards:.0f} entries differ.",
        equation="R(a)ᵀR(b) = [[cos(b − a), −sin(b − a)], [sin(b − a), cos(b − a)]] = R(b − a)",
    ),
    Claim(
        "B4.2",
        "Rotary positions",
        "rope_rotation",
        "The frequencies ω_i = 10000^(−2i/d_h), i = 0 … d_h/2 − 1, are a convention. With any positive base in place "
        "of 10000, the dot product still depends only on the difference of the positions, if the head width is even.",
        "10000^(−2i/d_h)",
        "confirmed",
        why="B4.1 needs only an angle that is proportional to the position: mω and nω differ by (n − m)ω for any ω. "
        "The base only sets the ω_i, so the proof works with a symbol θ as base; the measurements use the bases of "
        "the settings. An angle that grows with the square of the position breaks it, for any base. With an odd head "
        "width one component has no partner, so our two decoders, in torch and in NumPy, refuse it.",
        equation="ω_i = θ^(−2i/d_h); R(mω_i)ᵀR(nω_i) = R((n − m)ω_i) for every θ > 0",
    ),
    Claim(
        "B4.3",
        "Rotary positions",
        "rope_rotation",
        "With query and key at the same position the rotated dot product equals the unrotated one, and moving both "
        "positions by one shift does not change it.",
        None,
        "confirmed",
        why="With both vectors rotated by one angle, the dot product is qᵀR(a)ᵀR(a)k = qᵀk. With both positions "
        "shifted by s, the angle between them is (b + s) − (a + s) = b − a, as before. In experiment E1, the text's "
        "vectors give {printed:.7g} in fp64. With the same angle for both vectors they give {same:.7g}. Both values "
        "are within their rounding bounds. Shifting or rotating only one of the two changes the product.",
        equation="qᵀR(a + s)ᵀR(b + s)k = qᵀR(b − a)k = {printed:.6f} for the text's vectors",
    ),
    Claim(
        "B4.4",
        "Rotary positions",
        "rope_precision",
        "RoPE can be computed at any position, but the context is still limited: the rounding error of the angle "
        "grows with the position, and pairs with a low frequency reach angles that did not occur in training.",
        None,
        "confirmed",
        why="The angle is position times frequency, and rounding makes a relative error in it: the larger the "
        "position, the larger the error in radians. In fp32, with the first base of the settings and the largest head "
        "width, the largest error grows by a factor of {growth_fp32:.3g} from position 1 to the last tested position. "
        "If the angle is computed in fp64 and only its cosine is rounded, the error does not grow. bf16 cannot even "
        "store position {lost_bf16:.0f}. Also, {slow:.0f} pairs of components do not complete one full turn within "
        "the trained context, so a longer context gives the model angles that it has not seen. We "
        "confirmed these two facts. We did not test whether a trained model fails at such positions.",
        equation="error of position·ω ≤ |position·ω|·(a few u); u = 2⁻²⁴ in fp32: error {at_1000:.2g} at 1,000, "
        "{at_100000:.2g} at 100,000",
    ),
    Claim(
        "B4.5",
        "Rotary positions",
        "rope_values",
        "Rotary attention rotates the queries and the keys and does not change the values.",
        None,
        "confirmed",
        why="The scores should depend on positions: there, the two rotations combine to the difference of the "
        "positions. A value is not multiplied by a second rotated vector, so rotating it would leave the absolute "
        "position in the output. In our attention code the rotation changes {value:.0f} entries of the values, "
        "{query:.0f} of the queries and {key:.0f} of the keys. If the values are rotated too, the output changes by "
        "{turned:.2g}. A shift of all positions then changes it by {moved:.2g}, although such a shift must not change "
        "it at all.",
        equation="output_n = Σ_m softmax_m((R(nω)q_n)ᵀ(R(mω)k_m)/√d_h)·v_m",
    ),
    Claim(
        "B5.1",
        "Grouped queries",
        "grouped_query",
        "In grouped-query attention query head i uses key/value head ⌊i/g⌋ with g = h_q/h_kv: with eight query heads "
        "and two key/value heads, query heads 0–3 use key/value head 0, and 4–7 use key/value head 1.",
        "0–3 → 0, 4–7 → 1",
        "confirmed",
        why="The h_q query heads are divided into h_kv groups of g neighbours, and each group shares one key/value "
        "head. With one key only, the softmax is 1, so a query head outputs the value of the key/value head that it "
        "uses. In this way we see the map: query heads 0, 3, 4 and 7 use the key/value heads {head_0}, {head_3}, "
        "{head_4} and {head_7}. Our decoder, PyTorch's grouped kernel and the NumPy reference use this map for every "
        "pair (h_q, h_kv) that we tested. With the map i mod h_kv, {modulo:g} of the eight heads would use a "
        "different key/value head, and the outputs would differ by much more than rounding.",
        equation="g = h_q/h_kv; i → ⌊i/g⌋: 0–3 → 0, 4–7 → 1",
    ),
    Claim(
        "B5.2",
        "Grouped queries",
        "grouped_query",
        "With two key/value heads in place of eight the key/value cache is a quarter of the size.",
        "1/4",
        "confirmed",
        why="The cache holds keys and values of each key/value head; query heads are not cached. Its size is "
        "therefore proportional to h_kv: with two heads in place of eight it is {ratio} of the size, read from the "
        "storage of real tensors ({cache}). A cache with a copy for each of the eight query heads saves nothing: its "
        "ratio is {all:g}.",
        equation="2BT·h_kv·d_h·b / (2BT·h_q·d_h·b) = h_kv/h_q = {ratio}",
    ),
    Claim(
        "B5.3",
        "Grouped queries",
        "grouped_query",
        "At d = 128 with eight query and two key/value heads of 16, query and output projections together have 32,776 "
        "weights, key and value projections 81,912, and the sum is 40,960 of multi-head attention's 65,536, five "
        "eighths.",
        "32,776; 81,912; 40,960 of 65,536; 5/8",
        "refuted",
        "Two misprints: 32,776 should be 32,768, and 81,912 should be 8,192. The other figures are right.",
        why="The query and output projections are d × d for any grouping. The key and value projections map d numbers "
        "to h_kv·d_h numbers. Counted on a PyTorch module, query and output projections have {ends:,} weights (the "
        "text prints {ends.printed}), and key and value projections {middle:,} (the text prints {middle.printed}, ten "
        "times as many). The printed sum shows that these are misprints: only the right values add up to {sum:,}. The "
        "sum, the {whole:,} of multi-head attention and the share {share} are right.",
        equation="2d² + 2d·h_kv·d_h = {ends:,} + {middle:,} = {sum:,}; {sum:,} / {whole:,} = {share}",
    ),
    Claim(
        "B5.4",
        "Grouped queries",
        "grouped_query",
        "If each query head gets a copy of its key/value head, the outputs stay the same, but the memory saving of "
        "grouping is lost.",
        None,
        "confirmed",
        why="A copied head holds the same numbers, so each query head computes the same output, in the reference bit "
        "for bit. A broadcast view shows one head to many query heads without storing it again: {view} here. Copying "
        "the heads takes {copy}, as much as a cache with one key/value head for each query head ({kept:,}).",
        equation="copied / shared = h_q/h_kv = {copy:,} / {view:,}",
    ),
    Claim(
        "B5.5",
        "Grouped queries",
        "checkpoint",
        "If the key/value heads of a trained multi-head model are averaged within groups, the model computes a "
        "different function.",
        None,
        "confirmed",
        why="The mean of several heads differs from each of them, so the queries of the group use different keys and "
        "values. On the checkpoint that we trained (held-out loss {loss:.3g}), averaging changes a logit by "
        "{moved:.2g} times its rounding bound, and the held-out loss rises by at least {rise:.2g} nats per token. The "
        "mean changes nothing only if the heads of a group are equal. When we first make them equal, the largest "
        "change is {alike:.2g} times its rounding bound.",
        equation="mean(K₁, …, K_g) = K_i for every i only if K₁ = … = K_g; largest change / bound = {moved:.2g}, with "
        "equal heads {alike:.2g}",
    ),
    Claim(
        "B6.1",
        "LayerNorm and RMSNorm",
        "norms",
        "For the vector (1, 3), RMSNorm (root mean square √5) gives (0.447, 1.342) and LayerNorm gives (−1, 1).",
        "√5; (0.447, 1.342); (−1, 1)",
        "confirmed",
        why="RMSNorm divides a vector by the root of its mean square. The mean square of (1, 3) is (1 + 9)/2 = 5, so "
        "the vector becomes (1/√5, 3/√5). LayerNorm first subtracts the mean 2; that leaves (−1, 1), whose mean "
        "square is 1, so the division changes nothing. torch's own norms give the same numbers within their rounding "
        "bounds.",
        equation="RMSNorm: (1, 3)/√((1² + 3²)/2) = ({rmsnorm_1:.3f}, {rmsnorm_2:.3f}); LayerNorm: (1 − 2, 3 − 2)/√((1 "
        "+ 1)/2) = ({layernorm_1:.0f}, {layernorm_2:.0f})",
    ),
    Claim(
        "B6.2",
        "LayerNorm and RMSNorm",
        "norms",
        "Adding one constant to all components does not change LayerNorm's output and changes RMSNorm's.",
        None,
        "confirmed",
        why="The mean of x + c is the mean of x plus c, so subtracting the mean removes the constant before anything "
        "else happens, whatever ε is. RMSNorm subtracts nothing, so the constant changes the mean square and every "
        "component. For the text's vector in fp64, the constant changes LayerNorm's output by {layernorm:.3g} and "
        "RMSNorm's by {rmsnorm:.3g}.",
        equation="(x + c) − mean(x + c) = x − mean(x)",
    ),
    Claim(
        "B6.3",
        "LayerNorm and RMSNorm",
        "norms",
        "Multiplying all components by a positive number leaves the outputs of both norms unchanged only if ε is 0.",
        None,
        "confirmed",
        why="A positive factor a multiplies the numerator by a, and it multiplies the root of the mean square by a: "
        "the two cancel, but only if nothing else stands under the root. With ε > 0 the norm of a·x is the norm of x "
        "with ε/a², a different function of x. A small factor makes ε/a² large: with the smallest a and the largest ε "
        "of the settings, RMSNorm's output changes by up to {rmsnorm_moved:.3g}.",
        equation="a·x/√(mean((a·x)²) + ε) = x/√(mean(x²) + ε/a²)",
    ),
    Claim(
        "B6.4",
        "LayerNorm and RMSNorm",
        "norms",
        "RMSNorm needs fewer operations than LayerNorm. This does not mean that it is faster; the time must be "
        "measured.",
        None,
        "confirmed",
        why="LayerNorm does all that RMSNorm does. Before that, it needs d − 1 additions and one division for the "
        "mean, and d subtractions. Counted one by one at the largest width, without gain and bias, LayerNorm takes "
        "{layernorm} operations and RMSNorm {rmsnorm}. The time need not follow the number of operations: both norms "
        "read and write the same number of bytes, and memory access can take most of the time. The timing section has "
        "the seconds of both norms on this machine at every width; this verdict rests on the counts alone.",
        equation="LayerNorm 5d + 2 = {layernorm:,}; RMSNorm 3d + 2 = {rmsnorm:,}",
    ),
    Claim(
        "B7.1",
        "Gated feed-forward",
        "gated_feedforward",
        "The gated feed-forward is F(x) = [SiLU(xW_g) ⊙ (xW_u)]W_d with W_g and W_u of shape [d, f] and W_d of shape "
        "[f, d].",
        "[SiLU(xW_g) ⊙ (xW_u)]W_d",
        "confirmed",
        why="The feed-forward that we execute gives the text's formula up to rounding: the largest difference is "
        "{module:.2g}. Changing one part of the formula shows that each part matters. Swapping W_g and W_u changes "
        "the output by {swapped:.2g}; using GELU in place of SiLU changes it by {gelu:.2g}; removing the gate changes "
        "it by {plain:.2g}. In exact fractions we use max(x, 0) in place of SiLU; there the two sides are equal.",
        equation="F(x) = [SiLU(xW_g) ⊙ (xW_u)]W_d, W_g and W_u (d, f), W_d (f, d)",
    ),
    Claim(
        "B7.2",
        "Gated feed-forward",
        "gated_feedforward",
        "At an equal number of weights the gated feed-forward is two thirds as wide as the plain one: f = 4d becomes "
        "8d/3.",
        "8d/3",
        "confirmed",
        why="The plain feed-forward has two matrices of d·f weights, the gated one three. Equal numbers of weights "
        "therefore need a gated width of two thirds: for f = 4d that is 8d/3. The result holds for weights only. If "
        "biases are counted, the ratio at our test width is {biases:.4f}. In practice 8d/3 is rounded up to a "
        "multiple of a round number; the list of cases shows how many weights this adds.",
        equation="3·d·f′ = 2·d·f, so f′ = {ratio}·f; f = 4d gives {wide}·d",
    ),
    Claim(
        "B7.3",
        "Gated feed-forward",
        "gated_feedforward",
        "The gate's third matrix has a cost: at equal width it adds 50 % to the weights and FLOPs; at equal budget it "
        "adds nothing.",
        None,
        "confirmed",
        why="At the same width, three matrices cost 3/2 of what two matrices cost: {weights_width} of the weights and "
        "{FLOPs_width} of the FLOPs. At two thirds of the width, weights and FLOPs are {weights_budget} and "
        "{FLOPs_budget} times those of the plain layer. Parameters and compute change together, because every weight "
        "takes part in one multiply-add per token. So a comparison of gated and plain layers has to say which of the "
        "two widths it uses.",
        equation="3·d·f / (2·d·f) = {weights_width}; 3·d·(2f/3) / (2·d·f) = {weights_budget}",
    ),
    Claim(
        "B8.1",
        "Online softmax",
        "online_softmax",
        "Attention that reads its keys block by block, keeping a running maximum m, denominator a and numerator o, "
        "gives what the dense softmax gives.",
        "1e-12",
        "confirmed",
        why="After each block the loop holds the largest score m so far, the sum a of e^(s−m) and the sum o of "
        "e^(s−m)·v over the keys read. When a block has a larger maximum, a and o are multiplied by e^(m_old−m_new); "
        "the old terms then refer to the new maximum. So m, a and o always have the values of one pass over the keys "
        "read so far, and o/a at the end is the softmax's output. In exact fractions, with 2^x in place of e^x, every "
        "division of the keys into blocks, in every order, gives exactly the dense result. On the text's row, the "
        "blocked output {blocked:.7g} and the dense output differ by {apart:.2g}. Reading a block twice changes it by "
        "{twice:.2g}; leaving one out changes it by {out:.2g}.",
        equation="m = max s, a = Σ e^(s−m), o = Σ e^(s−m)·v, output = o/a = {blocked:.6f}",
    ),
    Claim(
        "B8.2",
        "Online softmax",
        "online_softmax",
        "The order in which the blocks are read does not matter.",
        None,
        "confirmed",
        why="The state after some blocks depends on the set of keys read and not on their order, because maximum and "
        "sum do not depend on the order of their terms. In exact fractions, all orders of the blocks give the same "
        "output. In floating point a sum does depend on its order in the last bits: over all orders of the text's "
        "blocks the output stays within {orders:.2g} of the reference, and the rounding bound is "
        "{orders.expected:.2g}.",
        equation="max and Σ over the keys read are the same in every order",
    ),
    Claim(
        "B8.3",
        "Online softmax",
        "online_softmax",
        "Masking after the block's maximum is taken, or a row with every key masked, can give undefined values, "
        "unless the algorithm says what to return.",
        None,
        "confirmed",
        why="If a hidden key has by far the largest score, every visible e^(s−m) underflows to 0, and 0/0 is not a "
        "number. If no key is visible, m is −∞ and the term e^(−∞−(−∞)) is not a number either. With one visible key, "
        "or with the hidden score below the others, the same code gives a finite result. So undefined values are "
        "possible, but they do not always occur. Our reference code defines the result for a row without visible "
        "keys: output 0, log-sum-exp −∞, all gradients 0.",
        equation="0/0 = NaN; e^(−∞ − (−∞)) = NaN",
    ),
    Claim(
        "B8.4",
        "Online softmax",
        "online_softmax",
        "Start the state from the first block, process finitely many blocks that do not overlap, and divide numerator "
        "by denominator at the end: the result is dense attention.",
        None,
        "confirmed",
        why="Starting from the first block and rescaling afterwards keeps the loop invariant, so the last state holds "
        "the sums over all keys, each key once. In exact fractions, every division of every tested row into blocks "
        "gives exactly the dense result. Reading a key twice or leaving a block out gives a different result. The "
        "text's code starts from m = −∞ and sets the first rescaling factor to 0 as a guard. If the first block has a "
        "visible key, the guard changes nothing, because e^(−∞−m) is already 0. If the first block is fully masked, "
        "the guard is not enough: the terms of the block are e^(−∞−(−∞)), and {guard:.0f} result is not a number. "
        "Skipping blocks without a visible key works.",
        equation="o/a = Σ_blocks Σ_keys e^(s−m)·v / Σ_blocks Σ_keys e^(s−m)",
    ),
    Claim(
        "B9.1",
        "Attention schedules",
        "attention_schedules",
        "FlashAttention-like kernels save memory traffic; the number of arithmetic operations still grows with T².",
        None,
        "confirmed",
        why="Without a mask, a blocked kernel multiplies every query with every key, like the dense form: the counted "
        "operations of its forward pass, divided by the dense form's, are {operations}, and they are {growth} times "
        "as many when the length doubles. A blocked kernel does not store the T × T matrix of scores, which the dense "
        "form writes to memory and reads again. With the fast-memory size of our settings, the causal forward pass "
        "reads and writes {traffic}. The dense form needs more: its largest tensor alone has {dense}. If attention "
        "really skips pairs, so that each block of tokens attends only to itself, doubling the length multiplies the "
        "operations by {local}.",
        equation="operations of scores and values 4·B·h·T²·d_h: factor {growth} when T doubles; scores 4·h·T² bytes "
        "in fp32 = {dense:,} bytes",
    ),
    Claim(
        "B10.1",
        "Function or schedule",
        "classification",
        "Each modern change in the text changes either the model's function or only the order of execution (the "
        "schedule).",
        None,
        "confirmed",
        why="Before the runs we write down for each change whether it changes the function or the schedule. Both "
        "forms then run on the same trained checkpoint. Two forms of the same function differ only by rounding, so no "
        "logit may change by more than the sum of their rounding bounds. If the function changes, at least one logit "
        "must change by at least 100 times that sum. In the tests, {function:.0f} changes are changes of function and "
        "{schedule:.0f} are changes of schedule, as we had written down. The text names {named:d} of them; the others "
        "are ours. We checked only these changes, on one checkpoint. If one weight changes by one unit in its last "
        "place, the largest logit change is "
        "{weight.unchanged:.2g} times the bound; if it changes by 2⁻¹⁰, {weight:.2g} times the bound.",
        equation="max |logit after − logit before| / (bound before + bound after): rope {rope:.2g}, grouped queries "
        "{gqa:.2g}, RMSNorm {rmsnorm:.2g}, gate {gated:.2g}; blocked {blocked:.2g}, fused {fused:.2g}, cache "
        "{cache:.2g}",
    ),
    Claim(
        "B10.2",
        "Function or schedule",
        "classification",
        "Putting rotary positions or grouped queries into an existing checkpoint changes its attention scores.",
        None,
        "confirmed",
        why="A checkpoint with learned positions was trained with positions added to the inputs; with rotary "
        "positions, the queries and keys are rotated instead. Averaging key heads gives different keys. Both change "
        "the scores in the first layer, by much more than rounding: rotary positions by {rope:.2g} times the bound, "
        "grouped queries by {gqa:.2g} times. If the heads of each group are made equal first, averaging changes "
        "nothing ({gqa_equal:.2g} of the bound).",
        equation="max |score after − score before| / bound = {rope:.2g} (rotary positions), {gqa:.2g} (grouped "
        "queries)",
    ),
)
