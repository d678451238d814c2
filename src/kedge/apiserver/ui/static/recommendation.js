// Requests and limits that fit the measured usage, by the rules of `kedge recommend`.

import { number } from "./quantity.js";

export const HEADROOM_PERCENT = 20;
/** The steps in which amounts are proposed: a thousandth of a core, a mebibyte. */
const STEP = { cpu: 0.001, memory: 2 ** 20 };
/** The least that is proposed, in steps. */
const SMALLEST = { cpu: 10, memory: 16 };
const HOUR_SECONDS = 3600;
const DAY_SECONDS = 86400;

/** The share of periods from which on the cpu limit, not the need, has decided the usage. */
const THROTTLED = 0.05;

/** Return the proposal for a container of several pods, by resource: `{window, seconds, pods, usual,
 *  most, request, limit, reached}`; without those that were not measured. */
export function proposal(documents, { name, resources }) {
  const windows = documents.flatMap((each) => each.containers ?? []).filter((each) => each.metadata.name === name).map((each) => each.metrics);
  const spans = windows.filter((each) => each["1d"]).map((each) => span(each["1d"]));
  const seen = Math.max(0, ...spans);
  const window = seen > HOUR_SECONDS ? "1d" : "1h";
  const found = {};
  for (const resource of Object.keys(STEP)) {
    const usual = values(windows, window, "95th", resource);
    const most = values(windows, window, "max", resource);
    if (!usual.length || !most.length) continue;
    const request = steps(resource, Math.max(...usual));
    const reached = isReached(windows, resource) ? (number(resources?.limits?.[resource]) ?? 0) : 0;
    const limit = Math.max(request, steps(resource, (Math.max(reached, ...most) * (100 + HEADROOM_PERCENT)) / 100));
    found[resource] = {
      reached: reached > 0,
      window, pods: usual.length, seconds: Math.min(seen, window === "1h" ? HOUR_SECONDS : DAY_SECONDS),
      usual: Math.max(...usual), most: Math.max(...most),
      request: text(resource, request), limit: text(resource, limit),
    };
  }
  return found;
}

/** Return whether a limit has cut off the usage: processes were killed for lack of memory, or held back. */
function isReached(windows, resource) {
  if (resource === "memory") return values(windows, "1d", "mean", "oom-kills").some((each) => each > 0);
  return ["1h", "1d"].some((window) => values(windows, window, "mean", "cpu-throttled").some((each) => each >= THROTTLED));
}

function span({ starttime, endtime }) {
  return starttime ? (Date.parse(endtime) - Date.parse(starttime)) / 1000 : DAY_SECONDS;
}

function values(windows, window, statistic, resource) {
  return windows.map((each) => number(each[window]?.[statistic]?.[resource])).filter((each) => each !== undefined);
}

function steps(resource, amount) {
  return Math.max(SMALLEST[resource], Math.ceil(Math.round((amount / STEP[resource]) * 1e6) / 1e6));
}

function text(resource, count) {
  if (resource === "cpu") return count % 1000 ? `${count}m` : String(count / 1000);
  return count % 1024 ? `${count}Mi` : `${count / 1024}Gi`;
}
