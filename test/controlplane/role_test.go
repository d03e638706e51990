package controlplane

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestPrograms(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	for _, folder := range []string{"bin", "bin/1.35", "bin/1.36"} {
		require.NoError(t, os.MkdirAll(filepath.Join(root, folder), 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(root, folder, "kube-apiserver"), nil, 0o600))
	}
	for _, tc := range []struct {
		name     string
		role     Role
		versions string
		want     string
		wantErr  string
	}{
		{name: "no version is named", role: Tenant, want: "bin"},
		{name: "that of the role", role: Tenant, versions: "tenant=1.35 super=1.36", want: "bin/1.35"},
		{name: "those of other roles", role: Meta, versions: "tenant=1.35 super=1.36", want: "bin"},
		{name: "no role", versions: "tenant=1.35", want: "bin"},
		{name: "a version that is not built", role: Super, versions: "super=1.37", wantErr: "no such file"},
		{name: "a role that there is not", role: Super, versions: "supers=1.36", wantErr: `"supers=1.36" is not meta, super or tenant`},
		{name: "no version", role: Super, versions: "super", wantErr: `"super" is not meta`},
		{name: "an empty one", role: Super, versions: "super=", wantErr: `"super=" is not meta`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			got, err := tc.role.programs(root, tc.versions)
			if tc.wantErr != "" {
				require.ErrorContains(t, err, tc.wantErr)
				return
			}
			require.NoError(t, err)
			require.Equal(t, filepath.Join(root, tc.want), got)
		})
	}
}
