import js from "@eslint/js";
import tseslint from "typescript-eslint";

export default tseslint.config(
  { ignores: ["lib", "labextension", "node_modules"] },
  js.configs.recommended,
  {
    files: ["**/*.ts", "**/*.tsx"],
    extends: [...tseslint.configs.strictTypeChecked],
    languageOptions: {
      parserOptions: { project: "./tsconfig.test.json", tsconfigRootDir: import.meta.dirname },
    },
  },
  {
    // A Lumino signal takes a method and the object it belongs to.
    files: ["src/view.ts", "src/panel/*.ts", "src/panel/*.tsx"],
    rules: { "@typescript-eslint/unbound-method": "off" },
  },
);
