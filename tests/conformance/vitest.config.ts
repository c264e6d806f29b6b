import { defineConfig } from "vitest/config"

// The suite waits for long-polls, heartbeats and expiry in real time.
export default defineConfig({
  test: { include: ["*.test.ts"], setupFiles: ["./http2.ts", "./token.ts"], testTimeout: 30_000, hookTimeout: 30_000 },
})
