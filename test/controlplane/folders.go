package controlplane

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// SuperpoolCRDs returns the folder of our CRDs.
func SuperpoolCRDs() (string, error) {
	root, err := Root()
	return filepath.Join(root, "manifests", "crds"), err
}

// Root returns the folder of this repository, also from a module of its own within it.
func Root() (string, error) {
	folder, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("finding the repository: %w", err)
	}
	for {
		if _, err := os.Stat(filepath.Join(folder, "test", "controlplane")); err == nil {
			return folder, nil
		}
		parent := filepath.Dir(folder)
		if parent == folder {
			return "", errors.New("no test/controlplane above the working folder")
		}
		folder = parent
	}
}
