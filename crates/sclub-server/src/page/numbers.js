// Formats of numbers.

const THIN = "\u202f";

function grouped(digits) {
  return digits.replace(/\B(?=(\d{3})+$)/g, THIN);
}

export function whole(value) {
  if (!Number.isFinite(value)) return "–";
  return (value < 0 ? "−" : "") + grouped(Math.abs(Math.round(value)).toFixed(0));
}

export function decimal(value, digits) {
  if (!Number.isFinite(value)) return "–";
  const [before, after] = Math.abs(value).toFixed(digits).split(".");
  const zero = !/[1-9]/.test(before + (after ?? ""));
  return (value < 0 && !zero ? "−" : "") + grouped(before) + (after ? `.${after}` : "");
}

// A number with a given number of digits.
function precise(value, digits) {
  if (!Number.isFinite(value)) return "–";
  const size = Math.abs(value);
  if (size >= 1000) return whole(value);
  if (size > 0 && size < 1e-5) {
    const [mantissa, power] = value.toExponential(Math.min(digits - 1, 1)).split("e");
    return `${mantissa.replace("-", "−")} × 10^${power.replace("-", "−")}`;
  }
  const rounded = Number(value.toPrecision(digits));
  const places = size === 0 ? 0 : Math.max(0, digits - 1 - Math.floor(Math.log10(size)));
  return decimal(rounded, Math.min(places, 12));
}

// The same without trailing zeros.
export function short(value, digits = 3) {
  return precise(value, digits).replace(/(\.\d*?)0+$/, "$1").replace(/\.$/, "");
}

// Two numbers that are compared, with enough digits to differ.
export function distinct(a, b) {
  for (let digits = 2; digits <= 8; digits += 1) {
    const texts = [precise(a, digits), precise(b, digits)];
    if (texts[0] !== texts[1] && (digits > 2 || Math.abs(a - b) > 0.1 * Math.abs(b))) return texts;
  }
  return [short(a), short(b)];
}

export function count(n, one, many = `${one}s`) {
  return `${whole(n)} ${n === 1 ? one : many}`;
}

// A date with the time of day.
export function date(ms) {
  return new Date(ms).toLocaleString("en-GB", { day: "numeric", month: "short", hour: "2-digit", minute: "2-digit" });
}

export function lasting(seconds) {
  if (seconds < 90) return `${whole(seconds)} s`;
  if (seconds < 90 * 60) return `${whole(seconds / 60)} min`;
  if (seconds < 36 * 3600) return `${whole(seconds / 3600)} h`;
  return `${whole(seconds / 86400)} d`;
}
