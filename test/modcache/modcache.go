// Package modcache finds files of Go modules that no Go package imports, for tests that need one.
package modcache

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
)

// Dir returns the folder of module's files in the module cache, in the version that the go.mod above the working folder
// selects. It downloads them first where they are not there yet: `go list -m` names no folder for a module that nothing
// has downloaded.
func Dir(ctx context.Context, module string) (string, error) {
	output, runErr := exec.CommandContext(ctx, "go", "mod", "download", "-json", module).Output()
	// After a failure of a download go exits with 1 and has written the reason to its output; other failures go to its
	// error output.
	var answer struct{ Dir, Error string }
	if err := json.Unmarshal(output, &answer); err != nil {
		answer.Error = string(output)
	}
	exit := &exec.ExitError{}
	switch {
	case answer.Error != "":
		return "", fmt.Errorf("downloading module %s: %s", module, answer.Error)
	case errors.As(runErr, &exit):
		return "", fmt.Errorf("downloading module %s: %w: %s", module, runErr, exit.Stderr)
	case runErr != nil:
		return "", fmt.Errorf("downloading module %s: %w", module, runErr)
	case answer.Dir == "":
		return "", fmt.Errorf("downloading module %s: go names no folder of its files", module)
	}
	return answer.Dir, nil
}
