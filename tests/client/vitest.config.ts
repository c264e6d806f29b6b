import { defineConfig } from "vitest/config"

// Live tails end when the server says so, in real time.
export default defineConfig({
  test: { include: ["*.test.ts"], testTimeout: 30_000, hookTimeout: 30_000 },
})
