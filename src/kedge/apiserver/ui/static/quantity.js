// Kubernetes quantities as numbers, and numbers as people read them.

const SUFFIXES = {
  n: 1e-9, u: 1e-6, m: 1e-3, "": 1, k: 1e3, M: 1e6, G: 1e9, T: 1e12, P: 1e15, E: 1e18,
  Ki: 2 ** 10, Mi: 2 ** 20, Gi: 2 ** 30, Ti: 2 ** 40, Pi: 2 ** 50, Ei: 2 ** 60,
};
const PATTERN = /^([+-]?[0-9.]+)(?:([eE][+-]?[0-9]+)|([a-zA-Z]*))$/;

/** Return a quantity as a number; undefined if it is missing or malformed. */
export function number(text) {
  if (text === undefined || text === null) return undefined;
  const match = PATTERN.exec(String(text));
  if (!match) return undefined;
  const factor = match[2] ? Number(`1${match[2]}`) : SUFFIXES[match[3] ?? ""];
  return factor === undefined ? undefined : Number(match[1]) * factor;
}

export function cpu(cores) {
  if (cores === undefined) return "–";
  if (cores === 0) return "0";
  if (cores < 0.001) return "<1m";
  return cores < 1 ? `${Math.round(cores * 1000)}m` : `${round(cores)}`;
}

export function bytes(amount) {
  if (amount === undefined) return "–";
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  let unit = 0;
  while (amount >= 1024 && unit < units.length - 1) {
    amount /= 1024;
    unit += 1;
  }
  return `${round(amount)} ${units[unit]}`;
}

export function round(value) {
  return value >= 100 ? Math.round(value) : value >= 10 ? Math.round(value * 10) / 10 : Math.round(value * 100) / 100;
}

/** Return how to show amounts of a resource. */
export function format(resource) {
  if (resource === "cpu") return cpu;
  return /memory|storage|^hugepages|^disk-(read|write)$|^network-/.test(resource) ? bytes : (value) => (value === undefined ? "–" : String(round(value)));
}

export function age(time, now = Date.now()) {
  const seconds = Math.max(0, Math.floor((now - new Date(time)) / 1000));
  if (!time || Number.isNaN(seconds)) return "–";
  if (seconds < 120) return `${seconds}s`;
  if (seconds < 7200) return `${Math.floor(seconds / 60)}m`;
  if (seconds < 172800) return `${Math.floor(seconds / 3600)}h`;
  return `${Math.floor(seconds / 86400)}d`;
}
