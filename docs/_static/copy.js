// A button on each block of code, but not of output, that copies it, without the prompts of Python examples.
document.addEventListener("DOMContentLoaded", () => {
  if (!navigator.clipboard) return;
  for (const block of document.querySelectorAll(":not(.highlight-text) > div.highlight > pre")) {
    const button = document.createElement("button");
    button.type = "button";
    button.className = "copy-code";
    button.textContent = "Copy";
    button.setAttribute("aria-label", "Copy the code");
    button.addEventListener("click", async () => {
      const lines = block.innerText.replace(/\n$/, "").split("\n");
      const prompts = lines.some((line) => /^>>> /.test(line));
      const code = prompts
        ? lines.filter((line) => /^(>>>|\.\.\.)( |$)/.test(line)).map((line) => line.slice(4))
        : lines;
      await navigator.clipboard.writeText(code.join("\n") + "\n");
      button.textContent = "Copied";
      setTimeout(() => { button.textContent = "Copy"; }, 1500);
    });
    block.parentElement.prepend(button);
  }
});
