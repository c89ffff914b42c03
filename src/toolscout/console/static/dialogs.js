// What lies over the page for a moment: the keys, and the question for a token.

import { fill, h } from "./dom.js";
import { areOn, KEYS, switchKeys } from "./keys.js";

function opened(...content) {
  const dialog = h("dialog", { onclose: () => dialog.remove() }, ...content);
  document.body.append(dialog);
  dialog.showModal();
  return dialog;
}

/** Show all keys, and the switch for those of one letter. */
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
        KEYS.map(([keys, told]) => [
          h(
            "dt",
            {},
            keys.map((key) => h("kbd", {}, key)),
          ),
          h("dd", {}, told),
        ]),
      ),
      h("label", { class: "inline" }, box, "Keys of one letter are on"),
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
      "aria-describedby": "token-told",
    });
    const told = h("p", { id: "token-told", class: "soft" });
    fill(
      told,
      wasWrong
        ? "That token is not accepted here. Look at [gateway.tokens] in the configuration."
        : "This gateway answers only to a token. It stays in this tab and is gone when you close it.",
    );
    const form = h(
      "form",
      { method: "dialog", class: "pad stack" },
      h("h2", { id: "token-title" }, "Enter your token"),
      told,
      h("label", { class: "field" }, "Token", field),
      h("button", { class: "primary" }, "Continue"),
    );
    const dialog = opened(form);
    dialog.setAttribute("aria-labelledby", "token-title");
    dialog.addEventListener("cancel", (event) => event.preventDefault());
    dialog.addEventListener("close", () => done(field.value.trim()));
  });
}
