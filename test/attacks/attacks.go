// Package attacks lists what a hostile tenant tries on the pool, and tries it: the tests of build tag attacks run each
// attack on real API servers, with its positive twin, which is the same within the rules. `make test-attacks` starts a
// pool for them. docs/security.md has the areas.
package attacks

import "strings"

// Attack is one thing that a hostile tenant tries. Its test is the subtest ID of the test of its area: Test, and the
// area's name with a capital letter.
type Attack struct {
	// ID is a short name, unique in All.
	ID string
	// Area is what the attack abuses.
	Area string
	// Tries is what the tenant does, and Holds what keeps it from gaining anything.
	Tries, Holds string
}

// All returns the attacks, area by area, in the order in which the tests run them.
func All() []Attack {
	return []Attack{
		{"long-names", "names", "namespaces whose names differ in the 63rd character only", "names in super clusters end in a hash: each namespace has one of its own"},
		{"taken-namespace", "names", "a namespace whose name in super clusters is one that the operator has there", "owners are compared: Event `NamespaceConflict`, and nothing is written there"},
		{"reserved-names", "names", "a ConfigMap with the name that the syncer gives to the tenant's `kube-root-ca.crt`", "the name is the pool's: pods get the CA of the tenant's control plane"},
		{"quota-name", "names", "a ResourceQuota named `superpool`, as the one in the super namespace, with other limits", "tenants' quotas are read, and never go down"},
		{"node-name", "names", "a pod with `spec.nodeName` of a node of the super cluster, and a forged condition `PodScheduled`", "no super pod; Event `NodeNameNotSupported`"},

		{"pod-marks", "marks", "a pod with the ownership marks of another tenant", "the syncer writes the marks, last"},
		{"config-marks", "marks", "a ConfigMap with the marks of another tenant, and a list of copied keys that names marks", "as above; the tenant's keys of that domain stay at home"},
		{"placements", "marks", "another `placements` annotation, with more slices and a super cluster that it does not hold", "it is put back, Event `PlacementsRestored`; only NamespacePlacements give room"},
		{"foreign-cluster", "marks", "a pod that names a super cluster where its namespace holds nothing", "the choice is removed, Event `SuperClusterNotPlaced`; no super pod there"},
		{"forged-node", "marks", "a Node with the pool's labels that names a super node on which no pod of the tenant runs", "the Node is told nothing of the super node"},

		{"other-cluster", "binding", "a Binding of its own pod, which was sent to one super cluster and is not bound there yet, to a node of another one", "kube-scheduler is told of a pod that moves as of one that ends and another one; Event `BoundByTenant`, and the programs live"},
		{"own-scheduler", "binding", "a kube-scheduler in its control plane", "what it binds runs there if the namespace has room there, else its controller makes it anew; Event `BoundByTenant` says what to turn off"},

		{"tenant", "identity", "a second VirtualCluster with the kubeconfig of another tenant", "`Ready=False`, reason DuplicateControlPlane, names the other one, of which nothing changes"},
		{"super-cluster", "identity", "a VirtualCluster with the kubeconfig of a super cluster", "as above; no super namespace of a super namespace"},
		{"meta-cluster", "identity", "a VirtualCluster with the kubeconfig of the meta cluster", "as above"},
		{"joins-the-pool", "identity", "to be a super cluster: an id in its control plane, and a Cluster with its kubeconfig", "Event `DuplicateControlPlane` on the Cluster, and no virtual Node"},

		{"account-secret", "tokens", "a Secret of type `kubernetes.io/service-account-token`", "it goes down as Opaque, so no token of a super cluster gets into it"},
		{"audience", "tokens", "a projected token whose audience is the super cluster's API server", "the token is the tenant's own, and the super cluster refuses it"},
		{"automount", "tokens", "a pod and a service account that ask for their token to be mounted", "super pods mount no token of the super cluster"},

		{"certificate", "credentials", "the certificate of its administrator, at the API servers of the pool and of another tenant", "each answers Unauthorized: control planes have authorities of their own"},
		{"token", "credentials", "a token of its service account, at the same ones", "each answers Unauthorized: control planes have keys of their own"},
		{"roles", "credentials", "its service account, and that of the super namespace, bound to cluster-admin", "no role goes down: in the super cluster the account may do nothing"},

		{"host-path", "paths", "a hostPath volume", "Event `PolicyForbids`, no super pod"},
		{"host-rights", "paths", "privileged containers, host namespaces, host ports, added capabilities, sysctls", "Event `PolicyForbids` by the Pod Security level, no super pod"},
		{"ephemeral-container", "paths", "a privileged ephemeral container in a pod that runs", "Event `PolicyForbids`, the super pod stays as it is"},

		{"baseline", "standards", "each pod that Pod Security publishes as one beyond its level baseline", "Event `PolicyForbids` for each, no super pod; those within the level go down"},
		{"restricted", "standards", "the same of level restricted, in a tenant whose policy has that level", "as above"},

		{"volume-name", "volumes", "an ephemeral volume that names a PersistentVolume of the operator's, with a hostPath", "Event `PolicyForbids`: claims name no volume"},
		{"storage-class", "volumes", "an ephemeral volume of a StorageClass that the policy does not list", "Event `PolicyForbids` names the class"},
		{"claim", "volumes", "a pod with a PersistentVolumeClaim", "Event `PolicyForbids`: the policy does not list the kind"},
		{"network-volumes", "volumes", "NFS, iSCSI and inline CSI volumes, which the node would mount", "Event `PolicyForbids` names each kind"},

		{"wildcard", "tolerations", "a toleration without a key, which tolerates every taint", "Event `TolerationsLeftOut`: the super pod is there without it"},
		{"operator-taint", "tolerations", "a toleration of the taint of dedicated nodes", "Event `TolerationsLeftOut`: the super pod is there without it, elsewhere"},
		{"later-toleration", "tolerations", "the same toleration, added to a pod that runs", "every update is checked too: Event `TolerationsLeftOut`, the super pod stays as it is"},
		{"node-labels", "tolerations", "a node selector, a node affinity and a topology key for a label of the operator's, and for one that no node has", "Event `PolicyForbids` names the key, whether nodes have it or not"},
		{"cordoned", "tolerations", "a pod that names a super cluster which is cordoned", "no super pod, Event `SuperClusterClosed`; the choice is removed, Event `SuperClusterNotGranted`"},
		{"runtime-class", "tolerations", "a RuntimeClass that the policy does not list", "Event `PolicyForbids` names the class"},
		{"priority-class", "tolerations", "a PriorityClass of its own, with the name of a high one of the super cluster", "super pods have no priority class of the tenant's"},

		{"namespace-labels", "metadata", "labels on its Namespace that policies of super clusters trust: teams, webhooks' exceptions, Pod Security", "super Namespaces have the tenant's labels under a prefix of ours only"},
		{"cloud-annotations", "metadata", "annotations of CNI plugins, runtimes and clouds on Pods, ServiceAccounts and Services, and the label of a cloud identity", "domains go down only if the policy lists them, and it lists none; the label is none of those without a domain"},
		{"image-pull", "metadata", "`imagePullPolicy: Never`, to run images that others have pulled", "every super pod has Always"},

		{"unnamed-resources", "quota", "memory, GPUs and huge pages in a namespace whose quota names cpu alone", "no super pod: what a quota does not name comes with the slices or is not there"},
		{"resize", "quota", "a pod that runs, resized in place to more than its namespace has", "Event `PolicyForbids`, the super pod stays as it is"},
		{"no-requests", "quota", "more pods without requests than come with the slices", "the super cluster's quota bounds `pods`, and the scheduler counts them"},
		{"full-cluster", "quota", "a pod that names a super cluster where its namespace has no room left", "no super pod: scheduler, syncer and quota hold the same bound; the choice is removed, Event `SuperClusterNotGranted`"},
		{"resource-names", "quota", "a ResourceQuota of 20,000 resource names", "`Accepted=False` names limits.resourceNames; others are placed as before"},
		{"many-slices", "quota", "a quota of 1,000 slices that no super cluster can hold", "it waits, and others are placed as before"},
		{"reserved", "quota", "a quota above limits.reserved of its policy", "`Accepted=False` names limits.reserved and its value"},
		{"namespaces", "quota", "more namespaces with a quota than limits.namespaces", "`Accepted=False` names limits.namespaces and its value"},
		{"monstrous", "quota", "a pod that requests 1e1000000 of memory", "Event `PolicyForbids` or a refusal by the tenant's own API server; others are synced as before"},

		{"node-ports", "network", "Services of type NodePort and LoadBalancer, and external IPs", "Event `TenantLimit` or `PolicyForbids`: the policy allows none, and they go down as type ClusterIP; external IPs stay at home, Event `ExternalIPsLeftOut`"},
		{"later-node-port", "network", "a Service of type ClusterIP that is changed to NodePort", "the super Service stays as it is, with an Event"},
		{"endpoints", "network", "EndpointSlices that lead to metadata services, to the super cluster's API server and to pods of another tenant", "their endpoints are left out, Event `EndpointsForbidden`"},
		{"service-ranges", "network", "an EndpointSlice that leads to a Service of another tenant, in a ServiceCIDR of the super cluster that poolCIDRs do not name", "ServiceCIDRs are closed but for the tenant's own: Event `EndpointsForbidden`"},
		{"ip-blocks", "network", "a NetworkPolicy that allows addresses of the pool", "it goes down without them, Event `NetworkPolicyNarrowed`"},
		{"isolation-late", "network", "pods right after their namespace, before its NetworkPolicies can be there", "the syncer creates no pod before the floor of the isolation"},
		{"isolation-name", "network", "a NetworkPolicy with the name of that floor, which allows everything", "the floor stays as it is"},

		{"config-maps", "size", "more ConfigMaps than limits.objects", "Event `TenantLimit`; no more go down, and others' do"},
		{"large-config-maps", "size", "ConfigMaps of together more bytes than limits.objects", "Event `TenantLimit`; no more go down"},
		{"other-server", "size", "an API server of its own, whose lists never end", "the connection ends, `Ready=False`, reason TooMuchData; the programs live, and others are synced as before"},
		{"long-errors", "size", "the same, which answers with an error text of 40 KB", "conditions and Events are cut, and written"},

		{"secrets", "foreign", "a pod that mounts, or has as variables, a Secret or ConfigMap that the operator keeps in its super namespace", "Event `FailedCreate` names it; what is optional is left out"},
		{"copied-marks", "foreign", "a pod in another namespace of the super cluster to which a controller has copied the marks of the tenant's own", "marks count in the super namespace of their owner alone: its address is not the tenant's, and it holds up no deletion"},

		{"refusals", "words", "a pod for a node whose taint it does not tolerate, to read what the super cluster's scheduler says", "it reads that no node takes the pod: no number of nodes, no taint"},
		{"nodes", "words", "to read in the Node of its pod what the node says of itself", "Kubernetes' own conditions without messages, and no ID of a machine"},

		{"files", "bounds", "a pod with 1,000 files of the downward API, each of which shows 1 MB of annotations", "what is written many times is counted before anything is made of it: Event `TenantLimit`, no super pod, and no program's memory grows"},
		{"later-files", "bounds", "the same of a pod that runs, whose annotation grows", "Event `TenantLimit`, the super pod stays as it is"},
		{"variables", "bounds", "a pod with 1,000 variables, each of which has an annotation of 262 kB", "as `files`"},
		{"services", "bounds", "a pod of 450 containers beside 60 Services of ten ports, whose variables each of them has", "as `files`"},
		{"tolerations", "bounds", "1,500 tolerations of taints that its policy lists, added to each of four pods that run", "64 go down, in one pass over them: Event `TolerationsLeftOut`, and pods beside them run"},
		{"labels", "bounds", "6,000 labels on its Namespace, each of which has 66 bytes below", "Event `TenantLimit`, the super Namespace stays as it is"},
		{"writes", "bounds", "a ConfigMap of 100 KiB that changes again and again", "what is written has a rate for each tenant: Event `WriteRateExceeded`, and others do not wait"},
		{"ip-blocks", "bounds", "a NetworkPolicy of 500 ipBlocks, each of which has 100 ranges of the pool as exceptions below", "it goes down without rules, Event `TenantLimit`"},
		{"kept-choices", "bounds", "pods that name a super cluster where its namespace is not, and a policy of its control plane that lets nobody take that off", "what was told once costs the meta cluster no live read"},

		{"pages", "answers", "an API server of its own, whose list has one page after the other, each with 130,000 empty endpoints in 400 kB", "what a page becomes counts before the next one is asked for: `Ready=False`, reason TooMuchData, and no program's memory grows"},
		{"arrays", "answers", "the same, with 7 MB of `[],` in a VolumeSnapshot, a kind that every program asks for", "as above: what a text becomes counts, not what it says"},
		{"denials", "answers", "a webhook that denies the status of pods with 7 MB", "4 KiB of an error come in: no program's memory grows, and no log"},
		{"flood", "answers", "a watch that sends small events as fast as it can", "4,096 events a second come in, and others are served"},

		{"grace", "time", "a grace period of a year", "super pods have at most pods.maxGracePeriodSeconds"},
		{"force-delete", "time", "a pod that does not end, deleted with force and then its namespace too", "the room stays reserved until the super pod is gone"},
		{"forged-end", "time", "a forged phase Succeeded of a pod that runs, and a smaller quota", "the room stays reserved while the super pod runs"},
		{"slow-webhook", "time", "a webhook by which each write of the pool's programs takes seconds", "three times, a namespace and a pod of another tenant take less than three times what they took before, and 5 seconds"},
		{"other-control-plane", "time", "a kubeconfig that suddenly leads to another control plane", "`ControlPlaneChanged`; nothing is deleted"},
	}
}

// Test returns the name of the test that runs the attack.
func (a *Attack) Test() string {
	return "Test" + strings.ToUpper(a.Area[:1]) + a.Area[1:] + "/" + a.ID
}
