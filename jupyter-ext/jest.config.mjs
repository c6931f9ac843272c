export default {
  testEnvironment: "jsdom",
  setupFiles: ["./test/setup.ts"],
  testRegex: "test/.*\\.test\\.tsx?$",
  modulePathIgnorePatterns: ["<rootDir>/labextension"],
  transform: { "^.+\\.tsx?$": ["ts-jest", { tsconfig: "tsconfig.test.json" }] },
};
