Super cluster r2: Ready, draining, v1.37.2
  Drained is False, Draining: Namespaces that are still placed here: 2

RESOURCE  RESERVED       FREE
cpu       66/100 66%     34
memory    20Gi/400Gi 5%  380Gi
pods      60/1000 6%     940

TENANT        NAMESPACE  SLICES  CPU  MEMORY  LEAVING
tenants/acme  web        1       2    4Gi     -
tenants/beta  data       0       4    8Gi     Drained
tenants/beta  stuck      0       60   8Gi     Drained

tenants/beta data: cpu=4 memory=8Gi pods=40 is to leave (Drained)
  it waits until its pods there have ended

tenants/beta stuck: cpu=60 memory=8Gi is to leave (Drained)
  it waits for room elsewhere: 0/5 super clusters are available: 5 have too little free for the namespace: cpu
