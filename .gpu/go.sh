export XLA_PYTHON_CLIENT_PREALLOCATE=false
(JAX_LOG_COMPILES=1 TF_CPP_MIN_LOG_LEVEL=0 timeout 110 python3 .gpu/variant.py "instance_targets 100000" > $OUT/log_i 2>&1) &
(XLA_FLAGS=--xla_gpu_autotune_level=0 timeout 110 python3 .gpu/variant.py "instance_targets 100000" > $OUT/log_i0 2>&1) &
(BLOCK=24 timeout 110 python3 .gpu/variant.py "instance_targets 100000" > $OUT/log_i24 2>&1) &
timeout 150 python3 .gpu/probe.py "posterior_predict,kernel,Temperature,ece 1,StackedScaling f,f 1" 2>$OUT/err
wait
for b in 20 23 29; do BLOCK=$b timeout 60 python3 .gpu/variant.py "posterior_predict 1000,instance_targets 10000,kernel" 2>>$OUT/err; done
grep -E "Finished XLA|slow|alarm|utotun|VARIANT" $OUT/log_i | awk '{print substr($0,1,200)}' | grep -v "in 0\.[0-4]" | tail -15
grep VARIANT $OUT/log_i0 $OUT/log_i24
tail -3 $OUT/err
