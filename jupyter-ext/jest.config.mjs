export default {
  testEnvironment: "jsdom",
  setupFiles: ["./test/setup.ts"],
  testRegex: "test/.*\\.test\\.ts$",
  modulePathIgnorePatterns: ["<rootDir>/labextension"],
  transform: { "^.+\\.ts$": ["ts-jest", { tsconfig: "tsconfig.test.json" }] },
};
