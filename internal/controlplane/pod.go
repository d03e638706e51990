package controlplane

import (
	"cmp"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
)

const (
	// certificates is where a pod finds its certificates.
	certificates Files = "/etc/kubernetes/pki"
	// nobody is the user that programs run as: that of images without one of their own.
	nobody = 65534
)

// program is what differs between the pods of components.
type program struct {
	component string
	template  *tenancyv1alpha1.ComponentTemplate
	flags     Flags
	// pairs are the Secrets of certificates that it reads, and keys those of which it reads the key alone. authorities are
	// those that it trusts.
	pairs, keys, authorities []string
	probe                    corev1.ProbeHandler
	ports                    []int32
	// grace is how long it may take to end, in seconds.
	grace int64
	// capabilities are those that the file of the program has: the kernel does not start it without.
	capabilities []corev1.Capability
}

// annotationTrusted, with the name of an authority behind it, has the certificates that a pod trusts, and finds in a file.
// Some programs read them once. Written by vc-manager; read by kubelets.
const annotationTrusted = "tenancy.x-k8s.io/trusted-"

// pod returns the template of a program's pods: what PodSecurity restricted demands, and no token.
func (p *program) pod(c *ControlPlane) corev1.PodTemplateSpec {
	annotations := map[string]string{}
	for _, name := range slices.Concat(p.authorities, p.keys) { // a key is replaced with those who trust it
		annotations[annotationTrusted+name] = c.Trusted[name]
	}
	container := corev1.Container{
		Name: p.component, Image: p.template.Image, Command: append([]string{p.component}, p.flags.With(p.template.ExtraArgs).Args()...),
		Resources: p.template.Resources, Env: memoryLimit(&p.template.Resources),
		TerminationMessagePolicy: corev1.TerminationMessageFallbackToLogsOnError,
		// etcd and the API server take minutes over what a machine that died has left; a probe that is answered ends it.
		StartupProbe:   &corev1.Probe{ProbeHandler: p.probe, PeriodSeconds: 2, FailureThreshold: 300, TimeoutSeconds: 5},
		LivenessProbe:  &corev1.Probe{ProbeHandler: p.probe, PeriodSeconds: 10, FailureThreshold: 8, TimeoutSeconds: 15},
		ReadinessProbe: &corev1.Probe{ProbeHandler: p.probe, PeriodSeconds: 2, FailureThreshold: 3, TimeoutSeconds: 15},
		SecurityContext: &corev1.SecurityContext{
			AllowPrivilegeEscalation: ptr.To(false), ReadOnlyRootFilesystem: ptr.To(true), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}, Add: p.capabilities},
		},
		VolumeMounts: []corev1.VolumeMount{{Name: "certificates", MountPath: string(certificates), ReadOnly: true}},
	}
	for _, port := range p.ports {
		container.Ports = append(container.Ports, corev1.ContainerPort{ContainerPort: port, Protocol: corev1.ProtocolTCP})
	}
	template := corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: Labels(p.component), Annotations: annotations},
		Spec: corev1.PodSpec{
			AutomountServiceAccountToken: ptr.To(false), EnableServiceLinks: ptr.To(false), TerminationGracePeriodSeconds: ptr.To(cmp.Or(p.grace, 30)),
			SecurityContext: &corev1.PodSecurityContext{
				RunAsNonRoot: ptr.To(true), RunAsUser: ptr.To[int64](nobody), RunAsGroup: ptr.To[int64](nobody), FSGroup: ptr.To[int64](nobody),
				FSGroupChangePolicy: ptr.To(corev1.FSGroupChangeOnRootMismatch), SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
			},
			TopologySpreadConstraints: []corev1.TopologySpreadConstraint{spread(p.component, corev1.LabelTopologyZone), spread(p.component, corev1.LabelHostname)},
			Containers:                []corev1.Container{container},
			Volumes:                   []corev1.Volume{p.certificates()},
		},
	}
	p.addFiles(&template, c.FileKeys)
	return template
}

// certificates returns the volume with the files of a program: those of all its Secrets, replaced together, and of what it
// trusts.
func (p *program) certificates() corev1.Volume {
	projected := &corev1.ProjectedVolumeSource{DefaultMode: ptr.To[int32](0o440)}
	for _, name := range p.pairs {
		project(projected, name, pair(name)...)
	}
	for _, name := range p.keys {
		project(projected, name, pair(name)[1])
	}
	annotations := &corev1.DownwardAPIProjection{}
	for _, name := range p.authorities {
		annotations.Items = append(annotations.Items, ofAnnotation(annotationTrusted+name, name+".crt"))
	}
	if len(annotations.Items) > 0 {
		projected.Sources = append(projected.Sources, corev1.VolumeProjection{DownwardAPI: annotations})
	}
	return corev1.Volume{Name: "certificates", VolumeSource: corev1.VolumeSource{Projected: projected}}
}

// pair returns the keys of a Secret with a certificate and its key, as files of that name.
func pair(name string) []corev1.KeyToPath {
	return []corev1.KeyToPath{{Key: corev1.TLSCertKey, Path: name + ".crt"}, {Key: corev1.TLSPrivateKeyKey, Path: name + ".key"}}
}

// project adds keys of a Secret to a volume.
func project(volume *corev1.ProjectedVolumeSource, secret string, items ...corev1.KeyToPath) {
	volume.Sources = append(volume.Sources, corev1.VolumeProjection{Secret: &corev1.SecretProjection{
		LocalObjectReference: corev1.LocalObjectReference{Name: secret}, Items: items,
	}})
}

// folder gives a program a folder of its own that ends with the pod.
func folder(pod *corev1.PodSpec, name, path string) {
	pod.Volumes = append(pod.Volumes, corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{SizeLimit: ptr.To(resource.MustParse("64Mi"))}}})
	pod.Containers[0].VolumeMounts = append(pod.Containers[0].VolumeMounts, corev1.VolumeMount{Name: name, MountPath: path})
}

// memoryLimit tells Go's runtime of nine tenths of the limit of memory, so that it collects garbage before the kernel
// ends the process.
func memoryLimit(resources *corev1.ResourceRequirements) []corev1.EnvVar {
	limit, limited := resources.Limits[corev1.ResourceMemory]
	if !limited {
		return nil
	}
	return []corev1.EnvVar{{Name: "GOMEMLIMIT", Value: strconv.FormatInt(limit.Value()/10*9, 10)}}
}

// spread keeps replicas in domains of their own where there are enough.
func spread(component, key string) corev1.TopologySpreadConstraint {
	return corev1.TopologySpreadConstraint{
		MaxSkew: 1, TopologyKey: key, WhenUnsatisfiable: corev1.ScheduleAnyway, LabelSelector: &metav1.LabelSelector{MatchLabels: Labels(component)},
	}
}

// https asks a path of a program that serves TLS.
func https(path string, port int) corev1.ProbeHandler {
	return corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Scheme: corev1.URISchemeHTTPS, Path: path, Port: intstr.FromInt(port)}}
}

// listen is the address of a program in a pod: all, of either family.
const listen = "0.0.0.0"

// replicas returns how many pods a component has, at least one.
func replicas(template *tenancyv1alpha1.ComponentTemplate) *int32 {
	return ptr.To(max(1, template.Replicas))
}
