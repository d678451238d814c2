// What the user may do, as the server says. What it may not do is not offered.

import { path, post } from "./session.js";
import { changed } from "./redraw.js";

const KEPT_MS = 60000;
const AGAIN_MS = 2000;
const answers = new Map();

/** Return whether the user may; undefined until the server has answered. The answer is asked for
 *  once, and again after a minute. */
export function may(verb, resource, namespace = "", { group = "", name = "" } = {}) {
  const key = [verb, group, resource, namespace, name].join(" ");
  const known = answers.get(key);
  if (!known || Date.now() - known.asked > KEPT_MS) {
    answers.set(key, { allowed: known?.allowed, asked: Date.now() });
    review(verb, resource, namespace, group, name).then(
      (allowed) => {
        const changes = answers.get(key)?.allowed !== allowed;
        answers.set(key, { allowed, asked: Date.now() });
        if (changes) changed();
      },
      // Without an answer, what is known holds.
      () => answers.set(key, { allowed: known?.allowed, asked: Date.now() - KEPT_MS + AGAIN_MS }),
    );
  }
  return known?.allowed;
}

/** Return whether the user may run commands in containers. The WebSocket is opened by GET, so it
 *  takes two rights. */
export function mayEnter(namespace) {
  return may("get", "pods/exec", namespace) && may("create", "pods/exec", namespace);
}

/** Return the server's answer; false if there is none. */
export function ask(...question) {
  return review(...question).catch(() => false);
}

async function review(verb, resource, namespace = "", group = "", name = "") {
  const [plural, subresource] = resource.split("/");
  const resourceAttributes = { verb, group, resource: plural, subresource, namespace, name };
  const document = { apiVersion: "authorization.k8s.io/v1", kind: "SelfSubjectAccessReview", spec: { resourceAttributes } };
  const found = await post(path("authorization.k8s.io/v1", "selfsubjectaccessreviews"), document);
  return found.status.allowed === true;
}
