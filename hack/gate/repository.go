package main

import (
	"context"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
)

// repository asks git.
type repository struct{ root string }

// head returns the commit, and whether the tree is as it says.
func (r repository) head(ctx context.Context) (string, bool, error) {
	commit, err := r.git(ctx, "rev-parse", "HEAD")
	if err != nil {
		return "", false, err
	}
	changes, err := r.git(ctx, "status", "--porcelain")
	return commit, changes == "", err
}

// changedSince returns how many commits since that one have changed what is at paths, all for none; false if it is not
// known here.
func (r repository) changedSince(ctx context.Context, commit string, paths []string) (int, bool) {
	text, err := r.git(ctx, append([]string{"rev-list", "--count", commit + "..HEAD", "--"}, paths...)...)
	if err != nil {
		return 0, false
	}
	count, err := strconv.Atoi(text)
	return count, err == nil
}

// differs returns whether what is at paths in the tree is other than at that commit, or that is not known here. Files
// that git does not know of yet are not looked at.
func (r repository) differs(ctx context.Context, commit string, paths []string) bool {
	_, err := r.git(ctx, append([]string{"diff", "--quiet", commit, "--"}, paths...)...)
	return err != nil
}

func (r repository) git(ctx context.Context, args ...string) (string, error) {
	command := exec.CommandContext(ctx, "git", args...)
	command.Dir = r.root
	output, err := command.Output()
	if err != nil {
		return "", fmt.Errorf("git %s: %w", strings.Join(args, " "), err)
	}
	return strings.TrimSpace(string(output)), nil
}

// short returns the beginning of a commit's name.
func short(commit string) string { return commit[:min(len(commit), 7)] }
