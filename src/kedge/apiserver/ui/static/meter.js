// A bar of usage against request and limit.

import { html, svg, nothing } from "./lit.js";
import { format } from "./quantity.js";

/** Draw usage as a bar: filled up to the usage, with a mark at the request. The bar ends at the
 *  limit, or at the capacity, or just behind what is largest. It is empty if there is nothing to
 *  compare with. */
export function meter(resource, { used, request, limit, capacity }) {
  const show = format(resource);
  const end = limit ?? capacity;
  const isOpen = end === undefined && request === undefined;
  const most = Math.max(end ?? 0, used ?? 0, (request ?? 0) * (end === undefined ? 1.25 : 1), Number.MIN_VALUE);
  const place = (value) => Math.min(100, (value / most) * 100);
  const share = end ? (used ?? 0) / end : 0;
  const tone = share > 0.9 ? "bad" : share > 0.75 ? "busy" : "good";
  const words = [
    `${resource} ${used === undefined ? "not measured" : show(used)}`,
    request === undefined ? "" : `request ${show(request)}`,
    limit === undefined ? "" : `limit ${show(limit)}`,
    capacity === undefined ? "" : `capacity ${show(capacity)}`,
  ];
  return html`<span class="meter">
    <svg class="bar" viewBox="0 0 100 10" preserveAspectRatio="none" role="img" aria-label=${words.filter(Boolean).join(", ")}>
      <rect class="track ${end === undefined ? "open" : ""}" width="100" height="10" rx="1"></rect>
      ${used === undefined || isOpen ? nothing : svg`<rect class="fill ${tone}" width=${place(used)} height="10" rx="1"></rect>`}
      ${request === undefined ? nothing : svg`<rect class="request" x=${Math.max(0, place(request) - 0.6)} width="1.2" height="10"></rect>`}
    </svg>
    <span class="figure" aria-hidden="true">${show(used)}<span class="of">${end === undefined ? (request === undefined ? "" : ` req ${show(request)}`) : ` / ${show(end)}`}</span></span>
  </span>`;
}
