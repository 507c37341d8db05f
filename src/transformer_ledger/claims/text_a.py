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
        "The table holds no −0.0, and the other rows hold no infinity and no NaN.",
        why="In the sum over the table's rows all products except one are 0. Adding 0 causes no rounding, so the "
        "result equals the entry in every bit. The text does not say that two kinds of entry break this. A −0.0 is "
        "added to +0.0 and becomes +0.0, a different bit pattern of the same number. If a different row holds an "
        "infinity, 0 · ∞ is NaN, and so is the sum: in our test {infinity_sequential} entries differ.",
        equation="Σⱼ eⱼ·Eⱼ = 0·E₁ + … + 1·Eᵢ + … + 0·E_V = Eᵢ",
    ),
    Claim(
        "A1.2",
        "Embedding lookup",
        "embedding_lookup",
        "The one-hot product takes as many multiplications as the table has entries, 696, while the lookup takes one "
        "indexed read.",
        "696",
        "confirmed",
        why="A row with V entries times a table with d columns takes one multiplication for every entry of the table, "
        "whatever the entries are: a multiplication by 0 is counted like any other. We counted {products:d} "
        "multiplications. Reading the row by its index takes none.",
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
        "The equality holds, exactly in fractions. Only the printed rounding error cannot be reproduced.",
        why="Each row of the concatenation contains the rows of the heads, one after another. Its product with W_O "
        "multiplies component j by row j of W_O and adds up over j; grouping the sum by head changes only the order "
        "of the additions. In exact fractions, with each head computed separately, both sides are equal for every H. "
        "A head multiplied by the rows of a different head gives a completely different output. In fp64 the order of "
        "the additions leaves a rounding error: {worst_sequential:.3g} with one term added after another, "
        "{worst_blas:.3g} with a library's order. The text's {worst_sequential.printed} is such an error. It depends "
        "on its random weights and tokens and on its order of summation, and the text does not publish them.",
        equation="concat(head₁, …, head_H)·W_O = Σ_h head_h·W_O^(h), W_O^(h) being rows (h−1)·d_h + 1 to h·d_h",
    ),
    Claim(
        "A2.2",
        "Output projection",
        "output_projection",
        "With a single head the table of the heads' contributions has one row. That row is the output itself, so it "
        "says nothing.",
        "1 row",
        "confirmed",
        why="With one head d_h = d: the head uses every row of W_O, so its contribution is the whole output, bit for "
        "bit. A table with only this row repeats the output; it does not split it into parts. With several heads the "
        "first row is a part: {several:d} of its components differ from the output's.",
        equation="H = 1: Σ_h head_h·W_O^(h) = head₁·W_O",
    ),
    Claim(
        "A2.3",
        "Output projection",
        "output_projection",
        "Because the output is a sum over heads, each head's share in it can be stated: the shares add up to the "
        "whole.",
        None,
        "confirmed",
        why="Take the part of a head's contribution that points along the output, as a fraction of the output's "
        "length. The contributions add up to the output, so these fractions add up to 1: exactly in fractions, and to "
        "within {sum:.1g} in fp64. A share is length times cosine, divided by the length of the output. A long "
        "contribution in a different direction has a small share; one in the opposite direction has a negative share.",
        equation="Σ_h ⟨head_h·W_O^(h), y⟩ / ⟨y, y⟩ = ⟨y, y⟩ / ⟨y, y⟩ = 1, y = Σ_h head_h·W_O^(h)",
    ),
    Claim(
        "A3.1",
        "Number of heads",
        "head_count",
        "Multi-head attention of width d has 4d² weights, whatever the number of heads that divides d.",
        "d × d each",
        "confirmed",
        why="A head has width d_h = d/H, so H heads together have H·d/H = d components. The matrices of query, key "
        "and value map d components to d, and the output projection maps d back to d, whatever H is. We counted the "
        "weights in the decoder's tensors for every divisor of d. Fewer key/value heads do save weights: with one "
        "key/value head for all query heads, d = 24 gives {one_24:,} weights and not {weights_24:,}.",
        equation="3·d·(H·d/H) + (H·d/H)·d = 4d² = {weights_24:,} for d = 24",
    ),
    Claim(
        "A3.2",
        "Number of heads",
        "head_count",
        "Drawn from one seed, the parameter vector has the same norm to nine digits for every number of heads: it is "
        "the same vector.",
        "nine digits",
        "confirmed",
        why="The tensors have the same shapes for every number of heads, and a seeded generator fills them in the "
        "same order with the same numbers. The number of heads is used only later, to split the matrices. So the "
        "vectors are equal in every bit, which is stronger than nine equal digits of the norm. A different seed "
        "changes the norm by {seed:.1%}.",
        equation="θ(H, seed) = θ(1, seed), hence ‖θ(H, seed)‖ = ‖θ(1, seed)‖",
    ),
    Claim(
        "A3.3",
        "Number of heads",
        "head_count",
        "The same weights with a different number of heads compute a different function: with one head a token has "
        "one attention pattern, with H heads it has H patterns.",
        None,
        "confirmed",
        why="Each head computes its scores from its own d_h components of query and key and has its own softmax, so H "
        "heads have H attention patterns. With two heads, {distance_2:.2f} of the attention weight lies on different "
        "tokens (the total variation distance, at most 1). The softmax is not linear, so splitting the scores into H "
        "parts changes the output: with two heads the logits of the last token change by up to "
        "{tied_2.unchanged:.2g}. If every head uses the first head's attention pattern, splitting into heads has no "
        "effect: there is one pattern, and the logits agree up to rounding.",
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
        why="q·k is a sum of d_k products. Each product has mean 0 and variance 1, and the products are uncorrelated, "
        "so the variances add up to d_k. Over random tokens and random projections, the deviation grows {growth:.3g} "
        "times from the narrowest to the widest head. With tokens of variance 4 the components of q and k have "
        "variance 4 too, and the deviation is four times √d_k: at d_k = 2, {variance_2:.3g} and not "
        "{variance_2.unchanged:.3g}. If the two projections are fixed and only the tokens are random, the deviation "
        "differs a little from √d_k: for one pair of projections at d_k = 2 it is {fixed_2:.3g}·√d_k.",
        equation="Var(q·k) = Σᵢ Var(qᵢkᵢ) = d_k; √(128/2) = 8, measured {growth:.3g}",
    ),
    Claim(
        "A4.2",
        "Scale of the scores",
        "score_scale",
        "Where the components of query and key have variance 1, the dot product divided by √d_k has standard "
        "deviation 1 at every width.",
        "1",
        "confirmed",
        why="The deviation of q·k is √d_k, so after the division by √d_k it does not depend on the width. Our decoder "
        "multiplies the scores by exactly 1/√d_k; at d_k = 128 its scores have a deviation of {scaled_128:.4g}. "
        "Dividing by d_k is too much: the deviation is then 1/√d_k, {divided_128:.3g} at d_k = 128, and attention "
        "starts almost uniform.",
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
        why="A softmax depends on the differences of the scores: one unit of difference is a factor of e between two "
        "weights. Unscaled scores have the deviation √d_k, so at d_k = 128 the largest of 32 is often several units "
        "above the next and takes most of the weight: {unscaled:.2f} on average. In a uniform row each weight would "
        "be 0.03. With the division the largest weight is {unscaled.unchanged:.2f} on average, and almost the same at "
        "every width. We chose ½ as the limit for “saturated” before the run.",
        equation="pᵢ/pⱼ = e^(sᵢ − sⱼ); deviation of s: √d_k = 11.3 at d_k = 128, and 1 after the division by √d_k",
    ),
    Claim(
        "A5.1",
        "Order of the prefix",
        "permutation",
        "In one attention layer without positions, permuting the tokens before the last one does not change the last "
        "position's logits.",
        "2.22e-16",
        "not reproducible",
        "The property holds, exactly in fractions. Only the printed rounding error cannot be reproduced.",
        why="The last token attends to all tokens, and its output is a sum over them, each with a weight from its "
        "score. Without positions, score and value of a token do not depend on its place, and a sum does not depend "
        "on the order of its terms. In exact fractions all orders agree; with rotary positions the logits change by "
        "{rotated:.3g}. In fp64 the order of the additions leaves a rounding error: {still_sequential:.2g} with one "
        "term added after another, {still_blas:.2g} with a library's order. The text's {still_sequential.printed} is "
        "such an error. It depends on its random weights and on its order of summation, and the text does not publish "
        "them.",
        equation="y_T = Σⱼ e^(q_T·kⱼ/√d_h)·vⱼ / Σⱼ e^(q_T·kⱼ/√d_h), j over all tokens, in any order",
    ),
    Claim(
        "A5.2",
        "Order of the prefix",
        "permutation",
        "With rotary positions the same permutations change the last position's logits, by up to 0.319.",
        "0.319",
        "not reproducible",
        "The logits change, by much more than rounding. Only the printed size of the change cannot be reproduced.",
        why="With RoPE a score depends on the distance between key and query. Moving a token changes its distance "
        "from the last position, and so its score and its weight. If all tokens have position 0, all distances are 0 "
        "and the change disappears (only rounding remains, {control_4:.1g}). How far the logits change depends on the "
        "random weights: with ours by up to {moved_4:.3g}, with the text's by {printed_sequential.printed}. The text "
        "does not publish its weights.",
        equation="score = q_T·R((j − T)ω)kⱼ/√d_h depends on j; with all positions 0 it is q_T·kⱼ/√d_h",
    ),
    Claim(
        "A5.3",
        "Order of the prefix",
        "permutation",
        "Only the last token's logits stay the same: the causal mask hides the later tokens from every other token, so "
        "what that token sees depends on the order.",
        None,
        "confirmed",
        why="Under the mask a token sees itself and the tokens before it. The last token sees all tokens in every "
        "order. Which tokens another token sees depends on the order, so its logits can change. In our test, the logits "
        "of each of the other tokens change in some orders: by up to {moved_3:.3g} for one token and {moved_0:.3g} for "
        "another. Without the mask every token sees all tokens in every order, and the "
        "change disappears (only rounding remains, {control_0:.1g}).",
        equation="a token at place t sees the tokens at places 1, …, t; the last token stands at T in every order",
    ),
    Claim(
        "A5.4",
        "Order of the prefix",
        "permutation",
        "With two layers under the causal mask the last position's logits depend on the order of the prefix, even "
        "without positions.",
        None,
        "confirmed",
        why="The first layer's outputs for the other tokens depend on the order, because the tokens that each of them "
        "sees do (A5.3). The second layer's last position reads those outputs, so its logits depend "
        "on the order too: they change by up to {moved_4:.3g}. Without the mask they do not change (only rounding "
        "remains, {control_4:.1g}): only the mask carries information about the order.",
        equation="layer 2 at T sums over layer 1's outputs y_t, and y_t depends on which tokens stand before t",
    ),
    Claim(
        "A6.1",
        "Rotary positions",
        "rope_relative",
        "If a query and a key are rotated by their positions, their dot product depends only on the difference of the "
        "positions.",
        "625 pairs, 49 groups, worst spread 1.33e-15",
        "not reproducible",
        "The property holds, exactly in symbols. Only the printed rounding error cannot be reproduced.",
        why="RoPE rotates every pair of components by an angle proportional to the position. The dot product of two "
        "rotated pairs depends only on the difference of the two angles, because rotating both by the same angle does "
        "not change the angle between them. So all pairs of positions with the same m − n give one value, exactly in "
        "symbols and in fractions. If only the query is rotated, pairs with the same m − n give values up to "
        "{keys:.3g} apart. In fp64 rounding errors remain: our values are up to {spread:.2g} apart. The text's "
        "{spread.printed} is such an error. It depends on the random query and key and on the order of summation, and "
        "the text does not publish them; ours are within their rounding bound.",
        equation="(R(mω)q)·(R(nω)k) = q·R(mω)ᵀR(nω)k = q·R((n − m)ω)k",
    ),
    Claim(
        "A6.2",
        "Rotary positions",
        "rope_relative",
        "The rotation does not change the length of a vector.",
        "4.44e-16",
        "not reproducible",
        "The property holds, exactly in symbols. Only the printed rounding error cannot be reproduced.",
        why="A rotation does not change the length of any pair of components, because cos² + sin² = 1, and the "
        "lengths of the pairs give the length of the vector. If the rotation also multiplies by 2, the length changes "
        "by {stretched:.3g}. In fp64 a rounding error remains: our length changes by {length:.2g} at most. The text's "
        "{length.printed} is such an error. It depends on its random vector and on its order of summation, and the "
        "text does not publish them.",
        equation="(a·cos θ − b·sin θ)² + (a·sin θ + b·cos θ)² = (a² + b²)(cos² θ + sin² θ) = a² + b²",
    ),
    Claim(
        "A6.3",
        "Rotary positions",
        "rope_relative",
        "Rotary positions do not change the scale of the scores: the standard deviation of q·k is still √d_k, so "
        "dividing by √d_k is still correct.",
        None,
        "confirmed",
        why="A rotation does not change lengths, so the components of a rotated query and key have variance 1 as "
        "before, and the sum of their d_k products has variance d_k. With random queries and keys as in A4, random "
        "positions and the division by √d_k, the scores have a deviation of {rope_128:.4g} at d_k = 128. If the "
        "rotation also multiplies by 2, the deviation is {stretched_128:.3g}.",
        equation="Var(R(mω)q · R(nω)k) = d_k; √(d_k/d_k) = 1, measured {rope_128:.4g}",
    ),
    Claim(
        "A7.1",
        "Causal prefix",
        "causal_prefix",
        "With the causal mask, one forward pass over 11 positions gives each position exactly the same loss as a "
        "separate pass over only the tokens up to that position.",
        "0 exactly, each position",
        "conditional",
        "The order of each sum does not depend on the shapes of the matrices; the text does not say this.",
        why="With the mask a position reads itself and the tokens before it; the tokens after it enter its sums only "
        "as exact zeros. When each sum is taken in a fixed order, these zeros change no bit: {bits_sequential:d} "
        "positions differ, and the claim holds as printed. A library's matrix product chooses the order by the shapes "
        "of the matrices, and each prefix has a different shape, so the other terms are grouped differently. With "
        "NumPy's product {bits_blas:d} positions differ, with torch's {bits_torch:d}, in both by rounding only "
        "({apart_blas:.1g} nats).",
        equation="y_t = Σ_(j ≤ t) p_tj·vⱼ + Σ_(j > t) 0·vⱼ; fl(Σ) depends on the order, and the order on the shape",
    ),
    Claim(
        "A7.2",
        "Causal prefix",
        "causal_prefix",
        "Without the causal mask, one pass over the whole sequence and separate passes over its prefixes give "
        "different losses.",
        None,
        "confirmed",
        why="Without the mask every position but the last reads tokens that a pass over its prefix does not have: in "
        "exact fractions {differ:d} outputs differ. The losses differ by up to {open:.2g} nats. With the mask they "
        "agree up to rounding.",
        equation="one pass: y_t = Σ_(j ≤ T) p_tj·vⱼ; its prefix: Σ_(j ≤ t) p_tj·vⱼ, with other weights p",
    ),
    Claim(
        "A7.3",
        "Causal prefix",
        "causal_prefix",
        "Without the causal mask, a position predicts the next token better, because it can see that token.",
        None,
        "conditional",
        "The model was trained without the mask. The text does not say this; an untrained model does not predict "
        "better when it sees the next token.",
        why="A model without the mask can see the next token, but that helps only if it has learned to copy it. A "
        "model with random weights has not learned this: over many initialisations, the share of correct predictions "
        "with and without the mask differs by at most {equivalent:.3g}. We had set the limit for “no difference” to "
        "{equivalent.expected:.2g} before the run. We then trained two models from the same initial weights, one with "
        "the mask and one without it, and tested each as it was trained: the model without the mask has a larger "
        "share of correct predictions, by at least {trained:.3g}. If the answers are shuffled, so that the next token "
        "in the input is not the answer, the gain is {shuffled:.2g}. When the model trained without the mask reads "
        "only the prefix, its loss is {alone:.2g} nats larger than that of the model trained with the mask.",
        equation="gain = correct(no mask) − correct(mask), as shares: untrained |gain| ≤ {equivalent:.3g}, trained "
        "gain ≥ {trained:.3g}",
    ),
    Claim(
        "A8.1",
        "Parameter rule",
        "parameter_rule",
        "Adding up the parts of the text's small model gives the same number of parameters as counting its tensors.",
        "difference 0",
        "confirmed",
        why="The breakdown lists every tensor of the model with its shape and adds up the products of the shapes. A "
        "PyTorch model and the NumPy reference are built from the same description, and the numbers in their tensors "
        "are counted. All three give {count}. If any one kind of tensor is left out of the breakdown, the two numbers "
        "differ.",
        equation="2Vd + L(4d² + 3df) + (2L + 1)d = {count:,} for L layers",
    ),
    Claim(
        "A8.2",
        "Parameter rule",
        "parameter_rule",
        "For this model the rule of thumb 12Ld² + Vd, with L layers, gives 2,112 parameters fewer than the count.",
        "2,112",
        "confirmed",
        why="The rule has 4d² weights for attention and 8d² for the feed-forward in each layer, and one table of Vd "
        "numbers. The model differs from that in three places. Its output layer has a second table ({head:+,}). Its "
        "feed-forward is a little narrower than 8d/3, because 8d/3 was rounded to a multiple of 8 ({feedforward:+,}). "
        "Its norms have weights too ({norms:+,}). Together these are the {missed:,} parameters that the rule does not "
        "count.",
        equation="count − (12Ld² + Vd) = {head:+,} {feedforward:+,} {norms:+,} = {missed:,}",
    ),
    Claim(
        "A8.3",
        "Parameter rule",
        "parameter_rule",
        "For this small model the rule's error is about 1 % of the parameters.",
        "1 %",
        "confirmed",
        why="The rule is too low by {share:.2f} % of the count, which rounds to 1 %. The output layer's table alone "
        "is larger than this error. Without it the difference would be {tied:.2f} %, so the rule would be too high.",
        equation="(count − rule) / count = {share:.2f} %",
    ),
    Claim(
        "A8.4",
        "Parameter rule",
        "parameter_rule",
        "At Llama's scale the rule 12Ld² + Vd misses the number of parameters by less than half a per cent.",
        "< 0.5 %",
        "refuted",
        "The size of a model does not decide how good the rule is; its shape does.",
        why="The text does not say which Llama it means. The rule assumes three things: keys and values as wide as "
        "queries, 8d² feed-forward weights in each layer, and one table for both embedding and output. Llama 3 8B "
        "breaks all three. Relative to the count, its wide feed-forward adds {llama_3_8b_feedforward:+.1f} %, grouped "
        "queries {llama_3_8b_attention:+.1f} % and the separate output layer {llama_3_8b_head:+.1f} %; in total the "
        "rule is {llama_3_8b:.1f} % too low. In Llama 3.1 405B the same terms nearly cancel "
        "({llama_3_1_405b_feedforward:+.1f} %, {llama_3_1_405b_attention:+.1f} %, {llama_3_1_405b_head:+.1f} %) and "
        "leave {llama_3_1_405b:.2f} %.",
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
        "backward pass, and a multiply-add is 2 operations: 6 operations for each weight and token. We counted the "
        "products with the weights on a PyTorch model of the shape of Llama 3 70B: 6ND is {over_weights:.3f} times "
        "that count. This ratio is above 1 because N includes the embedding, which multiplies nothing. Attention also "
        "multiplies queries by keys and probabilities by values, and 6ND leaves that out: at 8,192 tokens 6ND is "
        "{over_exact:.3f} times the FLOPs of all matrix products.",
        equation="C ≈ 6ND = {flops:.3g} FLOP; 6ND / all matrix products = {over_exact:.3f}",
    ),
    Claim(
        "A9.2",
        "Training compute",
        "training_compute",
        "16,000 H100 at an effective 400 TFLOP/s each give 6.4e18 FLOP/s. They need 984,375 s, or 11.4 days, for the "
        "6.30e24 operations.",
        "6.4e18 FLOP/s, 984,375 s, 11.4 days",
        "confirmed",
        why="The rate of the machine is the number of devices times the rate of one, {rate:.3g} FLOP/s. The time is "
        "the operations of A9.1 divided by that rate, {seconds:,} seconds. A day has 86,400 seconds, so this is "
        "{days:.1f} days. Half the devices would take twice as long.",
        equation="C / (devices · rate) = 6ND / {rate:.3g} = {seconds:,} s = {days:.1f} days",
    ),
    Claim(
        "A9.3",
        "Training compute",
        "training_compute",
        "The 11.4 days that 6ND gives agree with the published figures for Llama 3 70B, about 11 days.",
        "about 11 days",
        "refuted",
        "The published GPU-hours give about 1.5 times the text's time. About a third of the difference is attention, which 6ND "
        "leaves out. The rest comes from an effective rate below 400 TFLOP/s.",
        why="Meta's model card for Llama 3 70B gives 6.4 million GPU-hours. On the text's 16,000 GPUs that is "
        "{days:.1f} days, not {days.printed}. That is {more:.2f} days more than the "
        "text's {assumed:.1f}. At 8,192 tokens, the products inside attention, which 6ND leaves out, explain "
        "{attention:.2f} days. With the exact count for the weights in place of 6ND the time changes by "
        "{weights:+.2f} days. The other {lower_rate:.2f} days mean that a GPU ran slower than the assumed 400 "
        "TFLOP/s: the card's GPU-hours and 6ND give {rate:.0f} TFLOP/s with N = 70 billion, and "
        "{rate_llama_3_70b:.0f} with the exact N.",
        equation="{assumed:.2f} {weights:+.2f} {attention:+.2f} {lower_rate:+.2f} = {days:.2f} days. Implied rate 6ND "
        "/ (3600 · GPU-hours) in TFLOP/s: Llama 3 8B {rate_llama_3_8b:.0f}, Llama 3 70B {rate_llama_3_70b:.0f}, Llama "
        "3.1 8B {rate_llama_3_1_8b:.0f}, Llama 3.1 70B {rate_llama_3_1_70b:.0f}, Llama 3.1 405B "
        "{rate_llama_3_1_405b:.0f}",
    ),
    Claim(
        "A9.4",
        "Training compute",
        "training_compute",
        "The 6 is 2 operations per parameter and token in the forward pass and 4 in the backward pass: 2 for the "
        "gradient of the weights and 2 for the gradient of the inputs.",
        "2 + 4",
        "confirmed",
        why="A linear map multiplies its input by a weight and adds: {forward} in the forward pass. The backward pass "
        "needs two such products, one for the gradient of the weights and one for the gradient of the input: "
        "{backward}. PyTorch's operation counter finds exactly this in every linear map of a small decoder. If the "
        "weights are frozen, only the gradient of the input is computed: {frozen:g} per weight and token. Exceptions: "
        "the products inside attention have no weights; an embedding multiplies nothing; and the first linear maps "
        "need no input gradient if no layer before them is trained.",
        equation="y = Wx: forward 2; ∂L/∂W = (∂L/∂y)xᵀ: 2; ∂L/∂x = Wᵀ(∂L/∂y): 2; together {forward:g} + {backward:g} "
        "= 6",
    ),
    Claim(
        "A9.5",
        "Training compute",
        "training_compute",
        "For a mixture of experts the rule holds if N counts only the parameters that are active for a token.",
        None,
        "confirmed",
        why="A token passes through the router, through the experts that it is routed to and through the shared "
        "expert; it does not use the weights of the other experts. In a small mixture and in Mixtral 8x7B the counted "
        "operations are {active:g} for each active weight and token. If N contained all experts, the same operations "
        "of the small mixture would be {all:.2f} per weight and token. Here N counts only weights that multiply a "
        "token's vector; embeddings, norms and biases are not in N.",
        equation="C = 6 · N_active · D; count / (N_active · D) = {active:g}, count / (N_all · D) = {all:.2f}",
    ),
    Claim(
        "A9.6",
        "Training compute",
        "training_compute",
        "For the values at which the text sets its sliders (80 layers, d = 8192, V = 128,256) the rule gives 65.48 G "
        "parameters; with 15.0 T tokens, training takes 5.89e24 FLOPs and 10.7 days.",
        "65.48 G parameters, 15.0 T tokens, 5.89e24 FLOPs, 10.7 days",
        "confirmed",
        why="The rule 12Ld² + Vd gives the model's size from the three values. With 15.0 trillion tokens, 6ND gives "
        "the operations, and 16,000 devices at 400 TFLOP/s give the time. We checked only this arithmetic. The exact "
        "size of a model of this shape differs from the rule (A8.4), and the published GPU-hours give a longer time "
        "(A9.3).",
        equation="N = 12·80·8192² + 128,256·8192 = {N:,}; 6ND = {flops:.3g} FLOP; {days:.1f} days",
    ),
)
