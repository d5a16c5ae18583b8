// flashlearn.cost.formulas in JavaScript: what each algorithm costs, one head, N queries and N keys, to the byte.
// Held against the Python functions on 500 random settings by tests/browser/test_explorers.py.
//
// setting = { N, D, blockQ, blockK, causal, e, a }      e, a: bytes of an element, of a sum (2 and 4 for float16)
// cost    = { read, written, flops, extra }

// Sums over blocks of queries, each of which visits whole blocks of the keys that any of its queries sees.
function work(N, blockQ, blockK, causal) {
  let [visitedRows, keys, pairs] = [0, 0, 0];
  for (let start = 0; start < N; start += blockQ) {
    const stop = Math.min(N, start + blockQ);
    const blocks = Math.ceil((causal ? stop : N) / blockK);
    const visited = Math.min(N, blocks * blockK);
    visitedRows += (stop - start) * blocks;
    keys += visited;
    pairs += (stop - start) * visited;
  }
  return { visitedRows, keys, pairs };
}

const alone = ({ N, causal }) => (causal ? (N * (N + 1)) / 2 : N * N); // pairs, each query and key a block of its own

function standard({ N, D, e }) {
  const S = N * N;
  return { read: e * (3 * N * D + 2 * S), written: e * (N * D + 2 * S), flops: 4 * S * D, extra: 2 * e * S };
}

function twoPass(at) {
  const { N, D, e } = at;
  return { read: e * D * (N + 2 * alone(at)), written: e * D * N, flops: 4 * D * alone(at), extra: 0 };
}

function v1({ N, D, blockQ, blockK, causal, e, a }) {
  const { visitedRows, pairs } = work(N, blockQ, blockK, causal);
  return {
    read: 2 * e * N * D + visitedRows * (e * D + a * (D + 2)),
    written: a * (D + 2) * (N + visitedRows) - (a - e) * D * N,
    flops: 4 * D * pairs,
    extra: N * (2 * a + (a - e) * D),
  };
}

function v2({ N, D, blockQ, blockK, causal, e, a }) {
  const { keys, pairs } = work(N, blockQ, blockK, causal);
  return { read: e * D * (N + 2 * keys), written: N * (e * D + a), flops: 4 * D * pairs, extra: a * N };
}

function ideal(at) {
  const { N, D, e } = at;
  return { read: 3 * e * N * D, written: e * N * D, flops: 4 * D * alone(at), extra: 0 };
}

function standardBackward({ N, D, e }) {
  const S = N * N;
  return { read: e * (7 * N * D + 6 * S), written: e * (3 * N * D + 4 * S), flops: 10 * S * D, extra: 4 * e * S };
}

function storedBackward({ N, D, e }) {
  const S = N * N;
  return { read: e * (5 * N * D + 5 * S), written: e * (3 * N * D + 2 * S), flops: 8 * S * D, extra: 2 * e * S };
}

function twoPassBackward({ N, D, blockQ, blockK, causal, e, a }) {
  const { visitedRows, keys, pairs } = work(N, blockQ, blockK, causal);
  const row = 2 * e * D + 2 * a; // Q, dO, lse and delta
  return {
    read: 4 * e * N * D + (visitedRows + N) * row + 2 * e * D * keys,
    written: N * (a + e * D) + 2 * e * N * D,
    flops: 14 * D * pairs,
    extra: a * N,
  };
}

function fusedBackward({ N, D, blockQ, blockK, causal, e, a }) {
  const { visitedRows, pairs } = work(N, blockQ, blockK, causal);
  return {
    read: 4 * e * N * D + visitedRows * (2 * e * D + 2 * a + a * D),
    written: a * N + a * D * (N + visitedRows) - (a - e) * D * N + 2 * e * N * D,
    flops: 10 * D * pairs,
    extra: N * (a + (a - e) * D),
  };
}

// In the order of the ladder. `python`: the function of flashlearn.cost; `scores`: what it does with S in HBM.
export const ALGORITHMS = {
  forward: [
    { name: "standard", python: "standard_cost", cost: standard, colour: "S", scores: true },
    { name: "two-pass, one-pass", python: "two_pass_cost", cost: twoPass, colour: "V" },
    { name: "FlashAttention-1", python: "v1_cost", cost: v1, colour: "Q" },
    { name: "FlashAttention-2", python: "v2_cost", cost: v2, colour: "O", ours: true },
    { name: "every matrix once", python: "ideal_cost", cost: ideal, colour: "grey" },
  ],
  backward: [
    { name: "standard, P stored", python: "stored_backward_cost", cost: storedBackward, colour: "S", scores: true },
    { name: "standard, P made again", python: "standard_backward_cost", cost: standardBackward, colour: "V" },
    { name: "two sweeps", python: "two_pass_backward_cost", cost: twoPassBackward, colour: "O", ours: true },
    { name: "one sweep, dQ summed", python: "fused_backward_cost", cost: fusedBackward, colour: "Q" },
  ],
};

export const traffic = (cost) => cost.read + cost.written;

// The least time that bandwidth and arithmetic allow, and which of them says so.
export function placement(cost, gpu) {
  const [compute, memory] = [cost.flops / gpu.peak, traffic(cost) / gpu.bandwidth];
  return { seconds: Math.max(compute, memory), bound: compute >= memory ? "compute" : "memory" };
}

// Elements on chip while one block of queries meets one block of keys: Q, O, K, V and S.
export const sramElements = ({ blockQ, blockK, D }) => 2 * blockQ * D + 2 * blockK * D + blockQ * blockK;
