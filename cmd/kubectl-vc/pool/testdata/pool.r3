Super cluster r3: Ready, cordoned, Drained, v1.37.2

RESOURCE  RESERVED    FREE
cpu       0/100 0%    100
memory    0/400Gi 0%  400Gi
pods      0/1000 0%   1000

Nothing is reserved there.
