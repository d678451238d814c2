// The usage of a pod in its windows.

import { html } from "../lit.js";
import { watched } from "../cluster.js";
import { meter } from "../meter.js";
import { amounts, used } from "../pods.js";
import { problem } from "../parts.js";

export function usageTab(pod) {
  const { namespace, name } = pod.metadata;
  const watch = watched("metrics/v1alpha1", "pods", namespace, { fieldSelector: `metadata.name=${name}` });
  const usage = watch.get(namespace, name);
  return html`${problem(watch)}<div class="pair">${["cpu", "memory"].map((each) => meter(each, { used: used(usage, each), ...amounts(pod.spec, each) }))}</div>`;
}
