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
        why="Every part of the decoder has its term: the token table and the output layer Vd each, the position table Cd; "
        "in each layer four d × d maps in attention, two d × f maps with biases f and d in the feed-forward, and two "
        "LayerNorms of 2d numbers; and a final LayerNorm of 2d. The ledger's rows, added up in symbols, are this "
        "formula, and PyTorch decoders of several shapes hold exactly so many numbers. With biases in attention, or "
        "with one table for both ends, the number is another.",
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
        why="The same weights are applied at every position, so a longer input needs no further weights. The formula does "
        "not contain T, and one decoder counts the same parameters at every length it ran. What limits the length is "
        "C, the number of rows of the position table, which is fixed when the model is built. If the table had one "
        "row for each token of the input, the decoders for different lengths would have {sized_by_T:g} different "
        "counts.",
        equation="∂P/∂T = 0, ∂P/∂C = d",
    ),
    Claim(
        "B1.3",
        "Parameters of the teaching decoder",
        "teaching_parameters",
        "The attention probabilities of one layer are one tensor of shape [B, h, T, T], so their memory grows "
        "with the square of the length.",
        "[B, h, T, T]",
        "confirmed",
        why="Each of h heads weighs T keys for each of T queries, in each of B sequences: one number for every query and "
        "key. The tensor is read from a running attention, its shape and its bytes. Where T doubles it is {growth:g} "
        "times as large. A fused kernel gives the same output without ever holding this tensor: its largest tensor "
        "grows {fused:g} times.",
        equation="bytes = B·h·T²·b; (2T)² / T² = {growth:g}",
    ),
    Claim(
        "B2.1",
        "Training state",
        "training_state",
        "Training in fp32 with AdamW keeps 16 bytes a parameter: 4 for the weight, 4 for the gradient and 8 for "
        "the two moments.",
        "16",
        "confirmed",
        why="An fp32 number takes 4 bytes. After one AdamW step each parameter has a weight, a gradient and two running "
        "averages of the gradient, one of its values and one of their squares: four numbers. The bytes are read from "
        "the storage of the real tensors. PyTorch also keeps one step counter for each tensor, here {step} in all, "
        "which the 16 leaves out. SGD without momentum keeps no averages and so {sgd:g} bytes.",
        equation="4 (weight) + 4 (gradient) + 4 + 4 (moments) = {adamw:g} bytes/parameter",
    ),
    Claim(
        "B2.2",
        "Training state",
        "training_state",
        "Sixteen bytes a parameter is not a law: mixed precision and other recipes can keep other amounts, and "
        "activations, batches, work space and the allocator's reserve are not part of it.",
        None,
        "confirmed",
        why="How much a parameter takes depends on the types and on the optimiser. With every item in bf16 AdamW keeps "
        "{bf16.unchanged:g} bytes, with every item in fp32 {bf16:g}. Of the {recipes:g} recipes that ran, {other:g} "
        "keep another amount than 16; nothing is said of recipes that did not run. Some differ in kind and still keep "
        "16: bf16 weights and gradients with an fp32 copy of the weights and fp32 moments are 2 + 2 + 4 + 8. What the "
        "forward pass saves for the backward pass comes on top and grows with the batch: {activations_1} for one "
        "sequence, {activations_4} for four.",
        equation="bytes a parameter = weight + copy of the weight + gradient + moments; AdamW: 4 · 2 = {bf16.unchanged:g} in "
        "bf16, 4 · 4 = {bf16:g} in fp32",
    ),
    Claim(
        "B3.1",
        "Matrix products",
        "matmul_scaling",
        "With a multiply-add counted as 2 FLOPs, one layer's forward pass costs 8BTd² for the four projections, "
        "4BTdf for the feed-forward and 4BT²d for scores and weighted values.",
        "8BTd², 4BTdf, 4BT²d",
        "confirmed",
        why="A map from m to n numbers is mn multiply-adds for each of BT tokens, which is 2mn FLOPs. Four d × d "
        "projections make 8d², two d × f maps make 4df. The scores compare each of T queries with T keys of d numbers "
        "in all heads together, and the weighted values do the same once more: 4T²d for each sequence. PyTorch's "
        "counter finds exactly these numbers in our decoder at every batch and length that ran; the output layer adds "
        "2BTVd, and softmax, GELU, norms and biases are no matrix products. With one product left out or computed "
        "twice the count differs.",
        equation="over all layers of the largest run: 8BTd²N = {projections:,}, 4BTdfN = {feed:,}, 4BT²dN = {scores:,} FLOP",
    ),
    Claim(
        "B3.2",
        "Matrix products",
        "matmul_scaling",
        "A dense attention product costs the same with a causal mask as without it: masking a score does not "
        "skip its multiplication.",
        None,
        "confirmed",
        why="A dense kernel multiplies every query by every key and only then overwrites the hidden scores with −∞. So "
        "the counter finds {masked_True:,} FLOPs with the mask and {masked_False:,} without. A kernel that skips "
        "blocks of keys which the mask hides does less, {skipped:,}; the least possible, the visible pairs alone, is "
        "{pairs:,}.",
        equation="dense 4BT²d = {masked_True:,}; visible pairs 4B·T(T + 1)/2·d = {pairs:,}",
    ),
    Claim(
        "B3.3",
        "Matrix products",
        "matmul_scaling",
        "Doubling the length doubles the projections' work and quadruples attention's own; doubling the batch "
        "doubles both.",
        "×2, ×4; ×2, ×2",
        "confirmed",
        why="A projection works on each token by itself, so its work is proportional to B and to T. Attention's own "
        "products pair each token with each token of the same sequence: proportional to B and to T². Counted on our "
        "decoder, twice the length makes {length_projections:g} times the projections and {length_scores:g} times the "
        "scores and values; twice the batch makes {batch_projections:g} times either. For one new token with the "
        "others in a cache, twice the length is only {decode:g} times the scores and values.",
        equation="8B(2T)d² / 8BTd² = {length_projections:g}; 4B(2T)²d / 4BT²d = {length_scores:g}",
    ),
    Claim(
        "B4.1",
        "Rotary positions",
        "rope_rotation",
        "For plane rotations R(a)ᵀR(b) = R(b − a), so a rotated query and a rotated key see the difference of "
        "their positions alone.",
        "R(a)ᵀR(b) = R(b − a)",
        "confirmed",
        why="A rotation by −a undoes a rotation by a, and the transpose of a rotation is its inverse. Turning back by"
        " a and forward by b is therefore one turn by b − a, which does not know a and b apart from their "
        "difference. The proof runs the reference decoder's own rotation on symbols: no entry of the 2 × 2 "
        "matrices differs. Turned the other way, the product is R(a − b), and {backwards:.0f} entries differ.",
        equation="R(a)ᵀR(b) = [[cos(b − a), −sin(b − a)], [sin(b − a), cos(b − a)]] = R(b − a)",
    ),
    Claim(
        "B4.2",
        "Rotary positions",
        "rope_rotation",
        "The frequencies ω_i = 10000^(−2i/d_h), i = 0 … d_h/2 − 1, are a convention: with any positive base in "
        "place of 10000, query and key still see the difference of their positions alone (shown for a symbol, and"
        " in numbers for the configured bases), provided that the head width is even.",
        "10000^(−2i/d_h)",
        "confirmed",
        why="What B4.1 needs is an angle proportional to the position: mω and nω differ by (n − m)ω for any ω at all."
        " The base only chooses the ω_i, so the proof holds for a symbol θ as base. An angle that grows with the "
        "square of the position breaks it, for any base. An odd head width leaves one component without a "
        "partner, so the model and the reference both refuse it.",
        equation="ω_i = θ^(−2i/d_h); R(mω_i)ᵀR(nω_i) = R((n − m)ω_i) for every θ > 0",
    ),
    Claim(
        "B4.3",
        "Rotary positions",
        "rope_rotation",
        "With query and key at the same position the rotated dot product is the unrotated one, and moving both "
        "positions by one shift leaves it unchanged.",
        None,
        "confirmed",
        why="With both vectors turned by one angle, the dot product is qᵀR(a)ᵀR(a)k = qᵀk. With both positions "
        "shifted by s, the angle between them is (b + s) − (a + s) = b − a, as before. In experiment E1 the "
        "text's own vectors give {printed:.12g} in fp64, and with one angle for both {same:.12g}; both lie within"
        " the rounding error allowed. Shifting or turning one of the two alone changes the product.",
        equation="qᵀR(a + s)ᵀR(b + s)k = qᵀR(b − a)k = {printed:.6f} for the text's vectors",
    ),
    Claim(
        "B4.4",
        "Rotary positions",
        "rope_precision",
        "That the rotation can be computed at any position does not make the context unlimited: the angle's "
        "rounding error grows with the position, and slow pairs reach angles that training never showed.",
        None,
        "confirmed",
        why="The angle is position times frequency, and rounding makes a relative error in it: the further the "
        "position, the larger the error in radians. In fp32 with the first base and the widest head, the largest "
        "error grows by a factor of {growth_fp32:.3g} from position 1 to the last one tried; with the angle in "
        "fp64 and only its cosine rounded, it stays flat. bf16 cannot even store position {lost_bf16:.0f}. "
        "Besides, {slow:.0f} pairs of components never turn once within the trained context, so a longer context "
        "shows the model angles that it has not seen. That last point is why a position that can be computed is "
        "not yet one that the model can use; no trained model is tested here.",
        equation="error of position·ω ≤ |position·ω|·(a few u); u = 2⁻²⁴ in fp32: error {at_1000:.2g} at 1,000, "
        "{at_100000:.2g} at 100,000",
    ),
    Claim(
        "B4.5",
        "Rotary positions",
        "rope_values",
        "Rotary attention turns the queries and the keys and leaves the values as they are.",
        None,
        "confirmed",
        why="Positions are wanted in the scores, where the two rotations meet and leave the difference. A value is "
        "not multiplied by another turned vector, so turning it would leave the absolute position in the output. "
        "In the executed attention the rotation changes {value:.0f} entries of the values, {query:.0f} of the "
        "queries and {key:.0f} of the keys. Turning the values too moves the output by {turned:.2g}, and then a "
        "shift of all positions moves it by {moved:.2g}, where it may not move at all.",
        equation="output_n = Σ_m softmax_m((R(nω)q_n)ᵀ(R(mω)k_m)/√d_h)·v_m",
    ),
    Claim(
        "B5.1",
        "Grouped queries",
        "grouped_query",
        "In grouped-query attention query head i reads key/value head ⌊i/g⌋ with g = h_q/h_kv: of eight query "
        "heads over two key/value heads, 0–3 read head 0 and 4–7 read head 1.",
        "0–3 → 0, 4–7 → 1",
        "confirmed",
        why="The query heads are cut into h_kv groups of g neighbours, and a group shares one key/value head. With a "
        "single key the softmax is 1, so that a query head returns the value of the head that it reads; this shows "
        "the map. Of eight query heads over two, head 0 reads {head_0}, head 3 reads {head_3}, head 4 reads {head_4} "
        "and head 7 reads {head_7}. Our decoder, PyTorch's grouped kernel and the NumPy reference have this map for "
        "every pair of head numbers that ran. With the map i mod h_kv, {modulo:g} of the eight heads would read "
        "another head, and the outputs would be far outside rounding.",
        equation="g = h_q/h_kv; i → ⌊i/g⌋: 0–3 → 0, 4–7 → 1",
    ),
    Claim(
        "B5.2",
        "Grouped queries",
        "grouped_query",
        "With two key/value heads in place of eight the key/value cache is a quarter of the size.",
        "1/4",
        "confirmed",
        why="The cache holds keys and values of each key/value head; query heads are not cached. Its size is therefore "
        "proportional to h_kv: {ratio} of the size with two heads in place of eight, read from the storage of real "
        "tensors ({cache}). A cache that keeps a copy for each of the eight query heads saves nothing: {all:g}.",
        equation="2BT·h_kv·d_h·b / (2BT·h_q·d_h·b) = h_kv/h_q = {ratio}",
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
        why="Queries and outputs are d × d maps whatever the grouping; keys and values lead from d to h_kv·d_h numbers. "
        "Counted on a PyTorch module, query and output projections have {ends:,} weights, where the text prints "
        "{ends.printed}, and key and value projections {middle:,}, where it prints {middle.printed}. The printed sum "
        "shows that these are misprints: only the right values add up to {sum:,}. The sum, the {whole:,} of "
        "multi-head attention and the share {share} are right.",
        equation="2d² + 2d·h_kv·d_h = {ends:,} + {middle:,} = {sum:,}; {sum:,} / {whole:,} = {share}",
    ),
    Claim(
        "B5.4",
        "Grouped queries",
        "grouped_query",
        "Copying the key/value heads out to all query heads gives the same outputs and loses the memory that "
        "grouping saves.",
        None,
        "confirmed",
        why="A copied head holds the same numbers, so each query head computes the same output, in the reference bit for "
        "bit. A broadcast view shows one head to many query heads without storing it again: {view} here. Copying the "
        "heads out takes {copy}, as much as a cache that keeps a head for each query head ({kept}).",
        equation="copied / shared = h_q/h_kv = {copy:,} / {view:,}",
    ),
    Claim(
        "B5.5",
        "Grouped queries",
        "checkpoint",
        "Averaging the key/value heads of a trained multi-head model into groups does not keep its function.",
        None,
        "confirmed",
        why="The mean of several heads is a head that none of them was, so every query of the group meets other keys "
        "and sums up other values. On the checkpoint that this run trained (held-out loss {loss:.3g}), averaging "
        "moves a logit by {moved:.2g} times what rounding could explain, and the held-out loss rises by at least "
        "{rise:.2g} nats a token. Only where the heads of a group are alike does the mean leave them as they are:"
        " made alike first, the largest change is {alike:.2g} of its rounding bound.",
        equation="mean(K₁, …, K_g) = K_i for every i only if K₁ = … = K_g; largest change / bound = {moved:.2g}, with "
        "equal heads {alike:.2g}",
    ),
    Claim(
        "B6.1",
        "LayerNorm and RMSNorm",
        "norms",
        "Of the vector (1, 3), RMSNorm (root mean square √5) makes (0.447, 1.342) and LayerNorm makes (−1, 1).",
        "√5; (0.447, 1.342); (−1, 1)",
        "confirmed",
        why="RMSNorm divides a vector by the root of its mean square. The mean square of (1, 3) is (1 + 9)/2 = 5, so "
        "the vector becomes (1/√5, 3/√5). LayerNorm takes the mean 2 off first; that leaves (−1, 1), whose mean "
        "square is 1, so the division changes nothing. torch's own norms give the same numbers within the "
        "rounding error allowed.",
        equation="RMSNorm: (1, 3)/√((1² + 3²)/2) = ({rmsnorm_1:.3f}, {rmsnorm_2:.3f}); LayerNorm: (1 − 2, 3 − 2)/√((1 + "
        "1)/2) = ({layernorm_1:.0f}, {layernorm_2:.0f})",
    ),
    Claim(
        "B6.2",
        "LayerNorm and RMSNorm",
        "norms",
        "Adding one constant to all components leaves LayerNorm's output as it was and changes RMSNorm's.",
        None,
        "confirmed",
        why="The mean of x + c is the mean of x plus c, so subtracting the mean removes the constant before anything "
        "else happens, whatever ε is. RMSNorm subtracts nothing: the constant enters the mean square and every "
        "component. On the text's vector in fp64 the constant moves LayerNorm by {layernorm:.3g} and RMSNorm by "
        "{rmsnorm:.3g}.",
        equation="(x + c) − mean(x + c) = x − mean(x)",
    ),
    Claim(
        "B6.3",
        "LayerNorm and RMSNorm",
        "norms",
        "Multiplying all components by a positive number leaves both norms' outputs unchanged only where ε is 0.",
        None,
        "confirmed",
        why="A positive factor a multiplies the numerator by a, and it multiplies the root of the mean square by a: "
        "the two cancel, but only if nothing else stands under the root. With ε > 0 the norm of a·x is the norm "
        "of x with ε/a², another function of x. A small factor makes ε/a² large: with the smallest factor and the"
        " largest ε of this run, the largest component of RMSNorm moves by {rmsnorm_moved:.3g}.",
        equation="a·x/√(mean((a·x)²) + ε) = x/√(mean(x²) + ε/a²)",
    ),
    Claim(
        "B6.4",
        "LayerNorm and RMSNorm",
        "norms",
        "RMSNorm takes fewer operations than LayerNorm, which does not say that it is faster: that has to be measured.",
        None,
        "confirmed",
        why="LayerNorm does what RMSNorm does, and before it d − 1 additions and one quotient for the mean, and d "
        "subtractions. Counted one by one at the largest width, it takes {layernorm} against {rmsnorm} without "
        "gain and bias. A clock need not follow: both norms read and write the same number of bytes, and memory "
        "can be what takes the time. The timing section has the seconds of both norms on this machine at every "
        "width; this verdict rests on the counts alone.",
        equation="LayerNorm 5d + 2 = {layernorm:,}; RMSNorm 3d + 2 = {rmsnorm:,}",
    ),
    Claim(
        "B7.1",
        "Gated feed-forward",
        "gated_feedforward",
        "The gated feed-forward is F(x) = [SiLU(xW_g) ⊙ (xW_u)]W_d with W_g and W_u of shape [d, f] and W_d of "
        "shape [f, d].",
        "[SiLU(xW_g) ⊙ (xW_u)]W_d",
        "confirmed",
        why="The feed-forward that we execute gives the text's formula to within rounding: the largest difference is "
        "{module:.2g}. Changing one part of the formula shows that each part matters. Swapping W_g and W_u moves "
        "the output by {swapped:.2g}, GELU in place of SiLU by {gelu:.2g}, leaving the gate out by {plain:.2g}. "
        "The rational case replaces SiLU by max(x, 0) and agrees exactly.",
        equation="F(x) = [SiLU(xW_g) ⊙ (xW_u)]W_d, W_g and W_u (d, f), W_d (f, d)",
    ),
    Claim(
        "B7.2",
        "Gated feed-forward",
        "gated_feedforward",
        "At an equal number of weights the gated feed-forward is two thirds as wide as the plain one: f = 4d "
        "becomes 8d/3.",
        "8d/3",
        "confirmed",
        why="The plain feed-forward has two matrices of d·f weights, the gated one three. Equal numbers of weights "
        "therefore need a gated width of two thirds: for f = 4d that is 8d/3. The result holds for weights alone;"
        " with biases counted, the ratio at the width tried is {biases:.4f}. In practice 8d/3 is rounded up to a "
        "multiple, and the rows list what that adds.",
        equation="3·d·f′ = 2·d·f, so f′ = {ratio}·f; f = 4d gives {wide}·d",
    ),
    Claim(
        "B7.3",
        "Gated feed-forward",
        "gated_feedforward",
        "The gate's third matrix is not free: at equal width it adds half as many weights and FLOPs again, at "
        "equal budget it adds none.",
        None,
        "confirmed",
        why="Three matrices of one width cost three halves of two: {weights_width} of the weights and {FLOPs_width} "
        "of the FLOPs. At two thirds of the width the factors are {weights_budget} and {FLOPs_budget}. Parameters"
        " and compute move together, since every weight takes part in one multiply-add a token. So a comparison "
        "of gated and plain layers has to say which of the two widths it uses.",
        equation="3·d·f / (2·d·f) = {weights_width}; 3·d·(2f/3) / (2·d·f) = {weights_budget}",
    ),
    Claim(
        "B8.1",
        "Online softmax",
        "online_softmax",
        "Attention that reads its keys block by block, keeping a running maximum m, denominator a and numerator "
        "o, gives what the dense softmax gives.",
        "1e-12",
        "confirmed",
        why="After each block the loop holds the largest score m so far, the sum a of e^(s−m) and the sum o of "
        "e^(s−m)·v over the keys read. A block with a larger maximum multiplies a and o by e^(m_old−m_new), which"
        " restates the old terms relative to the new maximum; so the three numbers always are what one pass over "
        "those keys would give, and o/a at the end is the softmax's output. In fractions, with 2^x as "
        "exponential, every partition in every order agrees exactly. On the text's row the blocked output "
        "{blocked:.15g} is {apart:.2g} away from the dense one; reading a block twice moves it by {twice:.2g}, "
        "leaving one out by {out:.2g}.",
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
        "sum do not depend on the order of their terms. In fractions all orders of a partition give one output. "
        "In floating point a sum does depend on its order in the last bits: over all orders of the text's blocks "
        "the output stays within {orders:.2g} of the reference, and the rounding error allowed is "
        "{orders.expected:.2g}.",
        equation="max and Σ over the keys read are the same in every order",
    ),
    Claim(
        "B8.3",
        "Online softmax",
        "online_softmax",
        "Masking after the block's maximum is taken, or a row with every key masked, can give undefined values "
        "unless the algorithm says what to return.",
        None,
        "confirmed",
        why="If a hidden key has by far the largest score, every visible e^(s−m) underflows to 0, and 0/0 is not a "
        "number. If no key is visible, m is −∞ and the term e^(−∞−(−∞)) is not a number either. With one visible "
        "key, or with the hidden score below the others, the same code gives a finite result; so the values can "
        "be undefined and need not be. The reference defines the case: output 0, log-sum-exp −∞, all gradients 0.",
        equation="0/0 = NaN; e^(−∞ − (−∞)) = NaN",
    ),
    Claim(
        "B8.4",
        "Online softmax",
        "online_softmax",
        "Where the first block initialises the state directly, finitely many blocks that do not overlap, with the"
        " numerator divided by the denominator at the end, give dense attention.",
        None,
        "confirmed",
        why="Initialising from the first block and rescaling afterwards keeps the loop invariant, so the last state "
        "holds the sums over all keys, each key once. In fractions every partition of every row tried agrees "
        "exactly; reading a key twice or leaving a block out does not. Our remark on the text's code, which "
        "starts from m = −∞ and sets the first factor to 0: for a visible first block this guard changes nothing,"
        " because e^(−∞−m) is 0 already; for a fully masked first block it is not enough, because the block's own"
        " terms are e^(−∞−(−∞)), and {guard:.0f} result is not a number. Passing over blocks without a visible "
        "key is a guard that works.",
        equation="o/a = Σ_blocks Σ_keys e^(s−m)·v / Σ_blocks Σ_keys e^(s−m)",
    ),
    Claim(
        "B9.1",
        "Attention schedules",
        "attention_schedules",
        "Kernels of the FlashAttention kind save memory traffic; the number of arithmetic operations keeps its order.",
        None,
        "confirmed",
        why="A blocked kernel multiplies every query with every key that it may see, as the dense form does: counted "
        "on what runs, its full forward pass takes {operations} times the dense form's operations, and doubling "
        "the length multiplies them by {growth}. What it leaves out is the T × T plane of scores, which the dense"
        " form writes to memory and reads again. Counted with the fast memory of this setting, the causal forward"
        " pass moves {traffic}, less than the dense form, whose largest tensor alone is {dense}. Attention that "
        "really leaves pairs out, in runs of tokens that see themselves alone, grows by {local} only.",
        equation="operations of scores and values 4·B·h·T²·d_h: factor {growth} when T doubles; scores 4·h·T² bytes in "
        "fp32 = {dense:,} bytes",
    ),
    Claim(
        "B10.1",
        "Function or schedule",
        "classification",
        "Each of the modern changes that the text names is either a change of the model's function or a change of"
        " the order of execution (checked for these changes on one trained checkpoint, not for all that there "
        "could be).",
        None,
        "confirmed",
        why="Before any run each change is registered as one of function or one of schedule. Both forms then run on "
        "the same trained checkpoint. Two forms of one function differ by rounding alone, so no logit may move "
        "past the rounding bounds of both; a change of function must move one at least 100 times as far. "
        "{function:.0f} changes come out as function and {schedule:.0f} as schedule, all as registered. One "
        "weight moved by one unit in its last place stays within the bound ({weight.unchanged:.2g} of it), and "
        "moved by 2⁻¹⁰ it does not ({weight:.2g} times it).",
        equation="max |logit after − logit before| / (bound before + bound after): rope {rope:.2g}, grouped queries "
        "{gqa:.2g}, RMSNorm {rmsnorm:.2g}, gate {gated:.2g}; blocked {blocked:.2g}, fused {fused:.2g}, cache "
        "{cache:.2g}",
    ),
    Claim(
        "B10.2",
        "Function or schedule",
        "classification",
        "Putting rotary positions or grouped queries into an old checkpoint changes its scores.",
        None,
        "confirmed",
        why="A checkpoint with learned positions has weights that expect positions in the inputs; with rotary "
        "positions the queries and keys are turned instead. Averaging key heads gives other keys. Both change the"
        " first layer's scores, at once and far past rounding: rotary positions by {rope:.2g} times the bound, "
        "grouped queries by {gqa:.2g} times. Where the heads of each group are made alike first, averaging "
        "changes nothing ({gqa_equal:.2g} of the bound).",
        equation="max |score after − score before| / bound = {rope:.2g} (rotary positions), {gqa:.2g} (grouped queries)",
    ),
)
