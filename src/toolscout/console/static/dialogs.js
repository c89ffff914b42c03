// Dialogs: the list of keys, and the request for a token.

import { fill, h } from "./dom.js";
import { areOn, KEYS, switchKeys } from "./keys.js";

function opened(...content) {
  const dialog = h("dialog", { onclose: () => dialog.remove() }, ...content);
  document.body.append(dialog);
  dialog.showModal();
  return dialog;
}

/** Show all keys, and the switch for single-letter keys. */
export function showKeys() {
  const box = h("input", { type: "checkbox", onchange: () => switchKeys(box.checked) });
  box.checked = areOn();
  const dialog = opened(
    h(
      "div",
      { class: "pad stack" },
      h("h2", { id: "keys-title" }, "Keys"),
      h(
        "dl",
        { class: "keys" },
        KEYS.map(([keys, label]) => [
          h(
            "dt",
            {},
            keys.map((key) => h("kbd", {}, key)),
          ),
          h("dd", {}, label),
        ]),
      ),
      h("label", { class: "inline" }, box, "Single-letter keys are on"),
      h("form", { method: "dialog" }, h("button", { class: "primary" }, "Close")),
    ),
  );
  dialog.setAttribute("aria-labelledby", "keys-title");
}

/** Ask for a token until there is one. */
export function askToken(wasWrong) {
  return new Promise((done) => {
    const field = h("input", {
      type: "password",
      autocomplete: "off",
      required: true,
      "aria-describedby": "token-text",
    });
    const text = h("p", { id: "token-text", class: "soft" });
    fill(
      text,
      wasWrong
        ? "That token is not accepted here. Check [gateway.tokens] in the configuration."
        : "This gateway needs a token. It stays in this tab until you close it.",
    );
    const form = h(
      "form",
      { method: "dialog", class: "pad stack" },
      h("h2", { id: "token-title" }, "Enter your token"),
      text,
      h("label", { class: "field" }, "Token", field),
      h("button", { class: "primary" }, "Continue"),
    );
    const dialog = opened(form);
    dialog.setAttribute("aria-labelledby", "token-title");
    dialog.addEventListener("cancel", (event) => event.preventDefault());
    dialog.addEventListener("close", () => done(field.value.trim()));
  });
}
