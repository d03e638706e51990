package tenant

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/cmd/kubectl-vc/cli"
	"github.com/superpool/superpool/test/builders/vctest"
)

// TestHowFar: what a verb waits for, by what is said of the VirtualCluster as it is now.
func TestHowFar(t *testing.T) {
	t.Parallel()
	old := vctest.Is("UpToDate")
	old.ObservedGeneration = 1
	const whole = "all parts are as they are to be, of version v1.37.2"
	waiting, later := vctest.IsNot("Rotated", "Issuing", "2 of 3"), vctest.IsNot("Rotated", "Waiting", "from noon on")
	imported := func(vc *tenancyv1alpha1.VirtualCluster) { vc.Spec.ClusterVersionName = "" }
	for name, test := range map[string]struct {
		vc   *tenancyv1alpha1.VirtualCluster
		of   func(vc *tenancyv1alpha1.VirtualCluster, wished *tenancyv1alpha1.VirtualClusterSpec) cli.State
		want cli.State
	}{
		"nothing is said yet":            {vc: vctest.Tenant(nil), want: cli.State{Says: "waiting for vc-manager: kubectl -n vc-manager get pods"}},
		"it is said of one of before":    {vc: vctest.Tenant(nil, old), want: cli.State{Says: "waiting for vc-manager: kubectl -n vc-manager get pods"}},
		"all is made":                    {vc: vctest.Tenant(nil, vctest.Is("UpToDate")), of: made, want: cli.State{Done: true, Says: whole}},
		"it waits for the pool":          {vc: vctest.Tenant(nil, vctest.Is("UpToDate")), want: cli.State{Says: "waiting for vc-scheduler: kubectl -n vc-manager get pods"}},
		"the pool serves it":             {vc: vctest.Tenant(nil, vctest.Is("UpToDate"), vctest.Is("Ready")), want: cli.State{Done: true, Says: "the pool serves it"}},
		"a part is being made":           {vc: vctest.Tenant(nil, vctest.IsNot("UpToDate", "Progressing", "Waiting for etcd"), vctest.IsNot("EtcdReady", "Progressing", "0 of 1 pods")), want: cli.State{Says: "0 of 1 pods"}},
		"a version that is refused":      {vc: vctest.Tenant(nil, vctest.IsNot("UpToDate", "Invalid", "not v1.39")), want: cli.State{Refused: true, Says: "not v1.39"}},
		"a version that is not there":    {vc: vctest.Tenant(nil, vctest.IsNot("UpToDate", "ClusterVersionNotFound", "none")), want: cli.State{Refused: true, Says: "none"}},
		"imported, and served":           {vc: vctest.Tenant(imported, vctest.Is("Ready")), want: cli.State{Done: true, Says: "the pool serves it"}},
		"imported, and silent":           {vc: vctest.Tenant(imported, vctest.IsNot("Ready", "Unreachable", "no answer")), want: cli.State{Says: "no answer"}},
		"imported, and of another":       {vc: vctest.Tenant(imported, vctest.IsNot("Ready", "DuplicateControlPlane", "that of beta")), want: cli.State{Refused: true, Says: "that of beta"}},
		"paused":                         {vc: vctest.Tenant(nil, vctest.Is("Paused")), of: pausing, want: cli.State{Done: true}},
		"being paused":                   {vc: vctest.Tenant(nil, vctest.IsNot("Paused", "GivingBack", "3 pods")), of: pausing, want: cli.State{Says: "3 pods"}},
		"nobody pauses it":               {vc: vctest.Tenant(nil, vctest.IsNot("Paused", "NoPool", "no pool")), of: pausing, want: cli.State{Refused: true, Says: "no pool"}},
		"its authorities are replaced":   {vc: vctest.Tenant(nil, vctest.Is("UpToDate"), vctest.Is("Rotated")), of: rotating, want: cli.State{Done: true, Says: "the new authorities alone are trusted"}},
		"those of before are to go":      {vc: vctest.Tenant(distrusting, vctest.Is("UpToDate"), waiting), of: rotating, want: cli.State{Says: "2 of 3"}},
		"those of before are trusted":    {vc: vctest.Tenant(nil, vctest.Is("UpToDate"), waiting), of: rotating, want: cli.State{Done: true, Says: "2 of 3: hand out new kubeconfigs, then kubectl vc rotate acme -n tenants --distrust"}},
		"authorities are replaced later": {vc: vctest.Tenant(nil, vctest.Is("UpToDate"), later), of: rotating, want: cli.State{Says: "from noon on"}},
		"a tenant that is paused":        {vc: vctest.Tenant(vctest.Paused, vctest.IsNot("UpToDate", "Paused", "")), of: made, want: cli.State{Refused: true, Says: "it is paused: kubectl vc resume acme -n tenants"}},
		"a tenant that is resumed":       {vc: vctest.Tenant(nil, vctest.IsNot("UpToDate", "Paused", "it was")), of: made, want: cli.State{Says: "it was"}},
		"three Jobs have failed":         {vc: vctest.Tenant(restoring, vctest.IsNot("UpToDate", "Failed", "3 Jobs have failed")), of: restored, want: cli.State{Refused: true, Says: "3 Jobs have failed"}},
		"restored from another one":      {vc: vctest.Tenant(restoring, vctest.Is("UpToDate")), of: restored, want: cli.State{Says: "waiting for vc-manager"}},
		"a restore that is refused":      {vc: vctest.Tenant(restoring, vctest.IsNot("UpToDate", "Invalid", "no such backup")), of: restored, want: cli.State{Refused: true, Says: "no such backup"}},
		"a backup is being made":         {vc: vctest.Tenant(backingUp, vctest.IsNot("BackedUp", "Progressing", "it runs")), of: backedUp, want: cli.State{Says: "it runs"}},
		"a backup that failed":           {vc: vctest.Tenant(backingUp, vctest.IsNot("BackedUp", "Failed", "no room")), of: backedUp, want: cli.State{Refused: true, Says: "no room"}},
		"a backup of before":             {vc: vctest.Tenant(backedUpAt("etcd-backup-20261128-215959"), vctest.Is("BackedUp")), of: backedUp, want: cli.State{Says: "waiting for vc-manager: kubectl -n vc-manager get pods"}},
		"a backup that is whole": {
			vc: vctest.Tenant(backedUpAt("etcd-backup-20261128-220000"), vctest.Is("BackedUp")), of: backedUp,
			want: cli.State{Done: true, Says: "etcd-backup-20261128-220000 is whole: kubectl vc restore acme -n tenants etcd-backup-20261128-220000 makes its etcd anew of it"},
		},
		"restored from the one in place": {vc: vctest.Tenant(func(vc *tenancyv1alpha1.VirtualCluster) { restoring(vc); vc.Status.RestoredFrom = "b" }, vctest.Is("UpToDate")), of: restored, want: cli.State{Done: true, Says: whole}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			of := test.of
			if of == nil {
				of = func(vc *tenancyv1alpha1.VirtualCluster, _ *tenancyv1alpha1.VirtualClusterSpec) cli.State {
					return runs(vc)
				}
			}
			require.Empty(t, cmp.Diff(test.want, of(test.vc, &test.vc.Spec), cmp.AllowUnexported(cli.State{})))
		})
	}
}

func made(vc *tenancyv1alpha1.VirtualCluster, _ *tenancyv1alpha1.VirtualClusterSpec) cli.State {
	return provisioned(vc)
}

func distrusting(vc *tenancyv1alpha1.VirtualCluster) {
	vc.Spec.DistrustAfter = ptr.To(metav1.Now())
}

func backingUp(vc *tenancyv1alpha1.VirtualCluster) {
	vc.Spec.BackupAfter = ptr.To(metav1.NewTime(time.Date(2026, 11, 28, 22, 0, 0, 0, time.UTC)))
}

func backedUpAt(name string) func(vc *tenancyv1alpha1.VirtualCluster) {
	return func(vc *tenancyv1alpha1.VirtualCluster) {
		backingUp(vc)
		vc.Status.LastBackupName = name
	}
}

func restoring(vc *tenancyv1alpha1.VirtualCluster) { vc.Spec.RestoreFrom = "b" }

// TestWishes: what verbs change, and what they refuse without asking anybody.
func TestWishes(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 28, 22, 0, 0, 0, time.UTC)
	at := ptr.To(metav1.NewTime(now))
	made := tenancyv1alpha1.VirtualClusterSpec{ClusterVersionName: "v1.37"}
	rotatedSpec := tenancyv1alpha1.VirtualClusterSpec{ClusterVersionName: "v1.37", RotateAfter: ptr.To(metav1.NewTime(now.Add(-time.Hour)))}
	for name, test := range map[string]struct {
		verb  string
		of    tenancyv1alpha1.VirtualClusterSpec
		value string
		// rotated is the reason of condition Rotated where it is False.
		rotated string
		// said is a condition that is True.
		said string
		want tenancyv1alpha1.VirtualClusterSpec
		err  string
	}{
		"pause":                          {verb: "pause", of: made, want: tenancyv1alpha1.VirtualClusterSpec{ClusterVersionName: "v1.37", Paused: true}},
		"resume":                         {verb: "resume", of: tenancyv1alpha1.VirtualClusterSpec{Paused: true}},
		"upgrade":                        {verb: "upgrade", of: made, value: "v1.38", want: tenancyv1alpha1.VirtualClusterSpec{ClusterVersionName: "v1.38"}},
		"upgrade to nothing":             {verb: "upgrade", of: made, err: "--to is missing: kubectl get clusterversions"},
		"upgrade of an imported":         {verb: "upgrade", value: "v1.38", err: "its control plane is imported: whoever runs it upgrades it"},
		"rotate":                         {verb: "rotate", of: made, want: tenancyv1alpha1.VirtualClusterSpec{ClusterVersionName: "v1.37", RotateAfter: at}},
		"rotate an imported":             {verb: "rotate", err: "its control plane is imported: whoever runs it replaces its authorities"},
		"rotate again, while it goes on": {verb: "rotate", of: rotatedSpec, rotated: "Progressing", want: rotatedSpec},
		"distrust before rotated": {
			verb: "rotate", of: made, value: "true", err: "no authorities of before wait to be distrusted: kubectl vc rotate acme -n tenants replaces them, and waits for that",
		},
		"distrust too early": {
			verb: "rotate", of: rotatedSpec, rotated: "Progressing", value: "true",
			err: "no authorities of before wait to be distrusted: kubectl vc rotate acme -n tenants replaces them, and waits for that",
		},
		"distrust": {
			verb: "rotate", of: rotatedSpec, rotated: "Issuing", value: "true",
			want: tenancyv1alpha1.VirtualClusterSpec{ClusterVersionName: "v1.37", RotateAfter: rotatedSpec.RotateAfter, DistrustAfter: at},
		},
		"backup":                {verb: "backup", of: made, said: "BackedUp", want: tenancyv1alpha1.VirtualClusterSpec{ClusterVersionName: "v1.37", BackupAfter: at}},
		"backup without room":   {verb: "backup", of: made, err: "vc-manager makes no backups of it: they need spec.backup of ClusterVersion v1.37"},
		"backup of an imported": {verb: "backup", err: "its control plane is imported: whoever runs it backs it up"},
		"backup of a paused one": {
			verb: "backup", of: tenancyv1alpha1.VirtualClusterSpec{ClusterVersionName: "v1.37", Paused: true}, said: "BackedUp",
			err: "it is paused, and its etcd does not run: kubectl vc resume acme -n tenants",
		},
		"restore again": {
			verb: "restore", of: tenancyv1alpha1.VirtualClusterSpec{ClusterVersionName: "v1.37", RestoreFrom: "backup"},
			err: "spec.restoreFrom names it already; to restore from it again clear that, and wait until status.restoredFrom is clear: " +
				`kubectl -n tenants patch virtualcluster acme --type=merge -p '{"spec": {"restoreFrom": null}}'`,
		},
		"restore": {verb: "restore", of: made, want: tenancyv1alpha1.VirtualClusterSpec{ClusterVersionName: "v1.37", RestoreFrom: "backup"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, change := range changes() {
				if verb, _, _ := strings.Cut(change.use, " "); verb != test.verb {
					continue
				}
				vc := &tenancyv1alpha1.VirtualCluster{ObjectMeta: metav1.ObjectMeta{Namespace: "tenants", Name: "acme"}, Spec: *test.of.DeepCopy()}
				if test.rotated != "" {
					vc.Status.Conditions = []metav1.Condition{vctest.IsNot("Rotated", test.rotated, "")}
				}
				if test.said != "" {
					vc.Status.Conditions = append(vc.Status.Conditions, vctest.Is(test.said))
				}
				err := change.wish(vc, []string{"acme", "backup"}, test.value, now)
				if test.err != "" {
					require.EqualError(t, err, test.err)
					return
				}
				require.NoError(t, err)
				require.Empty(t, cmp.Diff(test.want, vc.Spec))
				return
			}
			t.Fatal("there is no such verb")
		})
	}
}

// TestRead: a file has one VirtualCluster, and no field that it has not.
func TestRead(t *testing.T) {
	t.Parallel()
	const good = "apiVersion: tenancy.x-k8s.io/v1alpha1\nkind: VirtualCluster\nmetadata: {name: acme}\nspec: {clusterVersionName: v1.37}\n"
	for name, test := range map[string]struct{ text, err string }{
		"one":         {text: good},
		"two":         {text: good + "---\n" + good, err: "is to have one VirtualCluster, and nothing else: kubectl apply -f"},
		"another":     {text: "apiVersion: v1\nkind: Namespace\nmetadata: {name: acme}\n", err: "is to have one VirtualCluster, and nothing else: kubectl apply -f"},
		"a wrong one": {text: strings.Replace(good, "clusterVersionName", "clusterversion", 1), err: `unknown field "clusterversion"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(t.TempDir(), "vc.yaml")
			require.NoError(t, os.WriteFile(file, []byte(test.text), 0o600))
			vc, err := read(file, "tenants")
			if test.err != "" {
				require.ErrorContains(t, err, test.err)
				return
			}
			require.NoError(t, err)
			require.Equal(t, "tenants/acme v1.37", vc.Namespace+"/"+vc.Name+" "+vc.Spec.ClusterVersionName)
		})
	}
}

// TestKnownPolicy: a TenantPolicy that is not there is told of, with those that are, and with how those come that are
// shipped.
func TestKnownPolicy(t *testing.T) {
	t.Parallel()
	scheme := runtime.NewScheme()
	require.NoError(t, tenancyv1alpha1.AddToScheme(scheme))
	for name, test := range map[string]struct {
		there []string
		name  string
		want  string
	}{
		"none is named":     {},
		"default as it is":  {name: "default"},
		"it is there":       {there: []string{"gold", "standard"}, name: "gold"},
		"closed":            {there: []string{"default"}, name: "closed", want: "there is no TenantPolicy closed: closed is what default says unless kubectl vc init --policies made it another one, so leave --policy out"},
		"a closed of yours": {there: []string{"closed"}, name: "closed"},
		"a preset that is not applied": {
			there: []string{"default"}, name: "trusted",
			want: "there is no TenantPolicy trusted, but default; kubectl vc init applies standard and trusted (a chart of Helm with policies.enabled=true)",
		},
		"none at all": {name: "gold", want: "there is no TenantPolicy gold, but none at all; kubectl vc init applies standard and trusted (a chart of Helm with policies.enabled=true)"},
		"a typo":      {there: []string{"trusted", "standard", "default"}, name: "standart", want: "there is no TenantPolicy standart, but default, standard, trusted"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			builder := fake.NewClientBuilder().WithScheme(scheme)
			for _, there := range test.there {
				builder = builder.WithObjects(&tenancyv1alpha1.TenantPolicy{ObjectMeta: metav1.ObjectMeta{Name: there}})
			}
			o, cluster := &creation{policy: test.name, secret: "s"}, builder.Build()
			vc, err := o.tenant(t.Context(), cluster, "tenants", "acme")
			if test.want != "" {
				require.EqualError(t, err, test.want)
				o.dry = cli.DryRunClient
				vc, err = o.tenant(t.Context(), cluster, "tenants", "acme")
			}
			require.NoError(t, err)
			require.Equal(t, test.name, vc.Spec.PolicyName)
		})
	}
	refused := fake.NewClientBuilder().WithScheme(scheme).WithInterceptorFuncs(interceptor.Funcs{
		Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
			return apierrors.NewForbidden(schema.GroupResource{Resource: "tenantpolicies"}, "gold", errors.New("no"))
		},
	}).Build()
	require.NoError(t, known(t.Context(), refused, "gold"), "who makes tenants need not read policies")
}

// TestFileOfCreate: the file of -o is made before anything else, for its owner alone, and is none that is there, nor a format.
func TestFileOfCreate(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	for output, want := range map[string]string{
		"wide": "give json, yaml or name, or a file for the kubeconfig", "JSONPath={.spec}": "give json, yaml or name, or a file", folder: "is there: name another file, or remove it",
		filepath.Join(folder, "none", "x"): "no such file or directory",
	} {
		_, err := (&creation{output: output, Waiting: cli.Waiting{Wait: true}, dry: cli.DryRunNone}).open()
		require.ErrorContains(t, err, want, output)
	}
	_, err := (&creation{output: filepath.Join(folder, "x"), dry: cli.DryRunNone}).open()
	require.ErrorContains(t, err, "leave --wait=false out")
	for _, output := range []string{"", "json", "name"} {
		file, err := (&creation{output: output, Waiting: cli.Waiting{Wait: true}, dry: cli.DryRunNone}).open()
		require.NoError(t, err)
		require.Nil(t, file)
		file.discard()
	}
	for _, written := range []bool{false, true} {
		file, err := (&creation{output: filepath.Join(folder, "x"), Waiting: cli.Waiting{Wait: true}, dry: cli.DryRunNone}).open()
		require.NoError(t, err)
		info, err := file.Stat()
		require.NoError(t, err)
		require.Equal(t, os.FileMode(0o600), info.Mode())
		if written {
			require.NoError(t, file.write([]byte("x")))
		}
		file.discard()
		_, err = os.Stat(filepath.Join(folder, "x"))
		require.Equal(t, written, err == nil)
	}
}

// TestFollow: what is waited for is said once, and again at the end, whatever the time; one that is replaced by another is gone.
func TestFollow(t *testing.T) {
	t.Parallel()
	scheme := runtime.NewScheme()
	require.NoError(t, tenancyv1alpha1.AddToScheme(scheme))
	vc := vctest.Tenant(func(vc *tenancyv1alpha1.VirtualCluster) { vc.UID = "first" }, vctest.IsNot("UpToDate", "Progressing", "waiting\nfor etcd"))
	for name, test := range map[string]struct {
		uid     string
		timeout time.Duration
		said    string
		err     string
	}{
		"one look":    {uid: "first", said: "   0s  waiting for etcd\n", err: "virtualcluster.tenancy.x-k8s.io/acme is not there after 0s: waiting for etcd"},
		"two looks":   {uid: "first", timeout: cli.LookPeriod, said: "   0s  waiting for etcd\n", err: "virtualcluster.tenancy.x-k8s.io/acme is not there after 500ms: waiting for etcd"},
		"another one": {uid: "second", timeout: time.Minute, err: "virtualcluster.tenancy.x-k8s.io/acme: it was deleted meanwhile"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cluster := fake.NewClientBuilder().WithScheme(scheme).WithObjects(vc.DeepCopy()).WithInterceptorFuncs(interceptor.Funcs{
				Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, options ...client.GetOption) error {
					if _, ends := ctx.Deadline(); ends {
						return errors.New("the look is cut off")
					}
					return c.Get(ctx, key, o, options...)
				},
			}).Build()
			var told bytes.Buffer
			c := &verbs{&cli.CLI{IOStreams: genericiooptions.IOStreams{ErrOut: &told}}}
			wished := vc.DeepCopy()
			wished.UID = types.UID(test.uid)
			err := c.follow(t.Context(), cluster, wished, cli.Waiting{Wait: true, Timeout: test.timeout}, provisioned, cli.State{Refused: true, Says: "it was deleted meanwhile"})
			require.EqualError(t, err, test.err)
			require.Equal(t, test.said, told.String())
		})
	}
}
