// The plane of the map: the two directions in which the estimates differ most.

const ITERATIONS = 200;
const TURN = (3 * Math.PI) / 180;

const dot = (a, b) => {
  let sum = 0;
  for (let i = 0; i < a.length; i += 1) sum += a[i] * b[i];
  return sum;
};

const combined = (a, u, b, v) => Float64Array.from(u, (x, i) => a * x + b * v[i]);

function unit(v) {
  const length = Math.sqrt(dot(v, v));
  return length > 1e-150 ? v.map((x) => x / length) : null;
}

function centred(rows, weights) {
  const dim = rows[0].length;
  const total = weights.reduce((sum, w) => sum + w, 0);
  const mean = new Float64Array(dim);
  rows.forEach((row, n) => row.forEach((x, i) => { mean[i] += (weights[n] / total) * x; }));
  return rows.map((row) => Float64Array.from(row, (x, i) => x - mean[i]));
}

// The weighted covariance times a vector, without the matrix itself.
function times(rows, weights, v) {
  const result = new Float64Array(v.length);
  rows.forEach((row, n) => {
    const part = weights[n] * dot(row, v);
    for (let i = 0; i < v.length; i += 1) result[i] += part * row[i];
  });
  return result;
}

// A unit vector at a right angle to `first`, near `wanted` if possible.
function across(first, wanted) {
  const dim = first.length;
  for (let axis = -1; axis < dim; axis += 1) {
    const start = axis < 0 ? wanted : Float64Array.from(first, (_, i) => (i === axis ? 1 : 0));
    const rest = start && combined(1, start, -dot(first, start), first);
    if (rest && dot(rest, rest) > 1e-20 * dot(start, start)) return unit(rest);
  }
  return new Float64Array(dim);
}

function startOf(dim, former) {
  if (former && former[0].length === dim) return former;
  const first = unit(Float64Array.from({ length: dim }, (_, i) => Math.cos(1 + 2.3 * i)));
  return [first, across(first, Float64Array.from({ length: dim }, (_, i) => Math.sin(2 + 3.1 * i)))];
}

// Both leading directions by power iteration on the pair, started from the previous ones.
function leading(rows, weights, former) {
  let [u, v] = startOf(rows[0].length, former);
  for (let step = 0; step < ITERATIONS; step += 1) {
    const first = unit(times(rows, weights, u)) ?? u;
    const second = across(first, times(rows, weights, v));
    const moved = 2 - Math.abs(dot(first, u)) - Math.abs(dot(second, v));
    [u, v] = [first, second];
    if (moved < 1e-10) break;
  }
  const [su, sv] = [times(rows, weights, u), times(rows, weights, v)];
  const angle = 0.5 * Math.atan2(2 * dot(u, sv), dot(u, su) - dot(v, sv));
  const [c, s] = [Math.cos(angle), Math.sin(angle)];
  return [combined(c, u, s, v), combined(-s, u, c, v)];
}

// The same plane, rotated (and mirrored if necessary) to match the previous frame, then back to its own axes
// by a few degrees a frame. So points do not jump, and the widest direction becomes horizontal.
function steadied([u, v], former) {
  if (!former || former[0].length !== u.length) return [u, v];
  const [a, b] = former;
  let [m11, m12, m21, m22] = [dot(u, a), dot(u, b), dot(v, a), dot(v, b)];
  let second = v;
  if (m11 * m22 - m12 * m21 < 0) {
    second = v.map((x) => -x);
    [m21, m22] = [-m21, -m22];
  }
  let angle = Math.atan2(m21 - m12, m11 + m22);
  const level = Math.round(angle / Math.PI) * Math.PI;
  angle += Math.max(-TURN, Math.min(TURN, level - angle));
  const [c, s] = [Math.cos(angle), Math.sin(angle)];
  return [combined(c, u, s, second), combined(-s, u, c, second)];
}

export function project(rows, weights, former) {
  const middle = centred(rows, weights);
  const total = weights.reduce((sum, w) => sum + w, 0);
  const variance = middle.reduce((sum, row, n) => sum + (weights[n] / total) * dot(row, row), 0);
  const basis = steadied(leading(middle, weights, former), former);
  const along = (axis) => middle.reduce((sum, row, n) => sum + (weights[n] / total) * dot(row, axis) ** 2, 0);
  const shares = variance > 1e-20 ? basis.map((axis) => along(axis) / variance) : null;
  return { basis, shares, points: rows.map((row) => basis.map((axis) => dot(row, axis))) };
}
