"use strict";
// Fetches this page again every five seconds and replaces the parts that have changed. The forms stay as they are.
const parts = ["head", "live", "sequences", "as-of"];

// Without the id that was asked about: its answer stays as it is.
function address() {
  const query = new URLSearchParams(location.search);
  query.delete("decode_sequence");
  query.delete("decode_id");
  return `${location.pathname}?${query}`;
}

// A part with the keyboard's focus or with marked text in it waits for the next time.
function inUse(part) {
  const selection = getSelection();
  return part.contains(document.activeElement) || (!selection.isCollapsed && selection.containsNode(part, true));
}

async function refresh() {
  const lost = document.getElementById("lost");
  try {
    const answer = await fetch(address(), { cache: "no-store", signal: AbortSignal.timeout(5000) });
    if (!answer.ok) throw new Error(answer.status);
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
    for (const id of parts) {
      const [old, now] = [document.getElementById(id), fresh.getElementById(id)];
      if (!old.isEqualNode(now) && !inUse(old)) old.replaceWith(now);
    }
    document.title = fresh.title;
    lost.hidden = true;
  } catch {
    lost.hidden = false;
  }
}

setInterval(() => document.hidden || refresh(), 5000);
document.addEventListener("visibilitychange", () => document.hidden || refresh());
