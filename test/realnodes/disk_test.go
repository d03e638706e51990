//go:build realnodes

package realnodes_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
)

// TestDiskFull: the disk of the only member of a store is full. Condition EtcdReady says so, nothing is lost that was
// written, and nobody does more than give the disk room.
func TestDiskFull(t *testing.T) {
	t.Parallel()
	d := newDrilled(t, &drilled{name: "filled", members: 1, servers: 1, number: 102})
	disk := d.bound(t, "etcd-0")
	d.drill(t, "its disk is one of 320 MiB", func() {})
	free := disk.fill(t, d.name)
	written, tenant := 0, d.meta.tenantOf(t, d.name)
	content := map[string]string{"text": strings.Repeat("0123456789abcdef", 32<<10)}
	var refused error
	for began := time.Now(); refused == nil; written++ {
		require.Less(t, written, 500, "writes of half a megabyte")
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		config := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("large-", written)}, Data: content}
		_, refused = tenant.client.CoreV1().ConfigMaps("default").Create(ctx, config, metav1.CreateOptions{})
		cancel()
		if refused != nil {
			t.Logf("%d writes in %.0f s, and then: %v", written, time.Since(began).Seconds(), refused)
			break
		}
	}
	full := time.Now()
	said := ""
	err := wait.PollUntilContextTimeout(t.Context(), interval, patience, true, func(context.Context) (bool, error) {
		said, _ = d.meta.try(t, "default", "get", "virtualcluster", d.name, "-o", `jsonpath={.status.conditions[?(@.type=="EtcdReady")]['reason','message']}`)
		return strings.Contains(said, "disk") && strings.Contains(said, "etcd-0"), nil
	})
	ended, _ := d.meta.try(t, d.key, "get", "pod", "etcd-0", "-o", "jsonpath={.status.containerStatuses[0]}")
	require.NoError(t, err, "the condition says: %s; the pod: %s", said, ended)
	t.Logf("said after %.0f s: %s", time.Since(full).Seconds(), said)
	d.drill(t, "the disk has room", free)
	for n := range written {
		config, err := d.meta.tenantOf(t, d.name).client.CoreV1().ConfigMaps("default").Get(t.Context(), fmt.Sprint("large-", n), metav1.GetOptions{})
		require.NoError(t, err, "it was written")
		require.Equal(t, content, config.Data)
	}
}

// disk is the volume of a member in the node, of a bounded size.
type disk struct{ folder string }

// bound gives the volume of a member a file system of its own, of 320 MiB, of which a log takes 128, with what it has.
func (d *drilled) bound(t *testing.T, member string) *disk {
	t.Helper()
	folders, err := filepath.Glob(filepath.Join(bed(t), "nodes", "meta", "var", "local-path-provisioner", "*_"+d.key+"_data-"+member))
	require.NoError(t, err)
	require.Len(t, folders, 1)
	v := &disk{folder: filepath.Join("/var/local-path-provisioner", filepath.Base(folders[0]))}
	// What runs goes on with the folder below, until another container begins.
	v.run(t, "mount -t tmpfs -o size=320m,mode=777 tmpfs %s", v.folder)
	t.Cleanup(func() { v.run(t, "umount -l %s", v.folder) })
	d.meta.run(t, d.key, "delete", "pod", member)
	aside := filepath.Join(bed(t), "nodes", "meta", "var", "tmp", d.name) // the node no longer sees the folder below
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(aside)) })
	output, err := exec.CommandContext(t.Context(), "cp", "-a", filepath.Join(folders[0], "data"), aside).CombinedOutput()
	require.NoError(t, err, "%s", output)
	v.run(t, "cp -a /var/tmp/%s %[2]s/copy && rm -rf %[2]s/data && mv %[2]s/copy %[2]s/data", d.name, v.folder)
	return v
}

// fill takes all the room that there is, and what the member gives back when it ends, until the returned function is
// called, or the test ends.
func (v *disk) fill(t *testing.T, name string) (free func()) {
	t.Helper()
	mark := filepath.Join(bed(t), "nodes", "meta", "var", "tmp", name+"-full")
	require.NoError(t, os.WriteFile(mark, nil, 0o600))
	eats := v.script(t, "while [ -e /var/tmp/%s-full ]; do cat /dev/zero >>%[2]s/filler 2>/dev/null || sleep 0.2; done; rm -f %[2]s/filler", name, v.folder)
	require.NoError(t, eats.Start())
	free = sync.OnceFunc(func() {
		require.NoError(t, os.Remove(mark))
		require.NoError(t, eats.Wait())
	})
	t.Cleanup(free)
	return free
}

// run runs a script in the node of the meta cluster.
func (v *disk) run(t *testing.T, format string, values ...any) {
	t.Helper()
	output, err := v.script(t, format, values...).CombinedOutput()
	require.NoError(t, err, "%s", output)
}

// script returns the command of a script there, which the end of the test does not end.
func (*disk) script(t *testing.T, format string, values ...any) *exec.Cmd {
	t.Helper()
	return exec.CommandContext(context.WithoutCancel(t.Context()), filepath.Join(root(t), "hack", "realnodes", "node.sh"), "meta", "bash", "-c", fmt.Sprintf(format, values...))
}
